// The command line beside a service: a key that it mints, and keys where its words and options belong.
import type { Test } from 'tap'
import { type Env, runLatchkey } from '../process/latchkey.ts'

export interface Minted {
  id: string
  token: string
  userId: string
  /** All that was written meanwhile, but for the one place of the key itself. */
  printed: string
}

export async function mintByCommand(t: Test, env: Env): Promise<Minted> {
  const user = await runLatchkey(t, env, 'users', 'create', '--name', 'Ada', '--json')
  const { id: userId } = JSON.parse(user.stdout)
  const owned = ['--user', userId, '--json']
  const made = await runLatchkey(
    t,
    env,
    'keys',
    'create',
    '--name',
    'x',
    '--rate-limit-rpm',
    '1000000000',
    ...owned,
  )
  const { id, plain_key: token } = JSON.parse(made.stdout)
  const listed = await runLatchkey(t, env, 'keys', 'list', ...owned)
  const written = [user, { ...made, stdout: made.stdout.replace(token, '') }, listed]
  return { id, token, userId, printed: written.map(({ stdout, stderr }) => stdout + stderr).join('\n') }
}

/** Each fails, or finds nothing. The likeliest first. */
export const misusesByCommand = (key: string): string[][] => [
  ['keys', 'revoke', key],
  [key],
  ['audit', 'list', '--key', key],
  ['keys', 'list', '--user', key],
  ['serve', key],
  [`--${key}`],
  ['keys', key],
  ['keys', 'create', '--name', 'x', '--user', key],
  ['keys', 'create', '--name', 'x', '--user', 'usr_0', '--rate-limit-rpm', key],
  ['users', 'delete', key],
  ['audit', 'find', key],
  ['audit', 'list', '--reason', key],
  ['audit', 'list', '--since', key],
]

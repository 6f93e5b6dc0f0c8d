// The command line on given servers, as a process of its own: what it prints.
import t from 'tap'
import { useServices } from '../services/index.ts'
import { everyCommand } from './every-command.ts'
import { externalEnv, runLatchkey, serveLatchkey } from './latchkey.ts'

t.test('on given servers beside a running service, --json is one JSON value', async (t) => {
  const env = externalEnv(await useServices(t))
  await everyCommand(t, env, (await serveLatchkey(t, env)).url)
})

t.test('without --json a command answers text for a person, with no service running', async (t) => {
  const env = externalEnv(await useServices(t))
  const text = async (...words: string[]) => {
    const { code, stdout, stderr } = await runLatchkey(t, env, ...words)
    t.equal(code, 0, `${words.slice(0, 2).join(' ')} succeeds: ${stderr}`)
    t.equal(stderr, '')
    t.ok(stdout.endsWith('\n'))
    t.throws(() => JSON.parse(stdout), 'it is not JSON')
    return stdout
  }
  const user = /usr_\w+/.exec(await text('users', 'create', '--name', 'Ada'))![0]
  const made = await text('keys', 'create', '--user', user, '--name', 'ci')
  const key = /apk_\w+/.exec(made)![0]
  const token = /lk_\w+/.exec(made)![0]
  t.match(await text('users', 'list'), user)
  const list = await text('keys', 'list', '--user', user)
  t.match(list, key)
  t.notMatch(list, token, 'the secret is shown at creation only')
  t.match(await text('keys', 'revoke', key), key)
  const entries = await text('audit', 'list', '--key', key)
  t.match(entries, 'key.revoked')
  t.match(await text('audit', 'find', /req_\w+/.exec(entries)![0]), 'key.revoked')
  t.match(await text('users', 'delete', user), user)
})

/**
 * The command line. A fault is one plain line on stderr and exit code 1. With `--json`, an answer
 * is one JSON value.
 */
import { parseArgs } from 'node:util'
import { readConfig } from '../config.ts'
import { redactAnyToken } from '../rules/token.ts'
import { version } from '../version.ts'
import type { Command } from './command.ts'
import { printable, printableJson } from './printable.ts'

const usage = `latchkey ${version}

  latchkey serve                                   run the service
  latchkey migrate                                 bring the database schema up to date
  latchkey users create --name NAME
  latchkey users list
  latchkey users delete usr_…                      soft-delete; returns once every instance refuses the keys
  latchkey keys create --user usr_… --name NAME [--rate-limit-rpm N] [--expires-at UNIX_SECONDS]
  latchkey keys list --user usr_…
  latchkey keys revoke apk_…                       returns once every instance refuses the key
  latchkey keys rehash-status                      how many keys are not yet hashed under HASH_SECRET
  latchkey audit find req_…
  latchkey audit list [--reason REASON] [--key apk_…] [--since TIME] [--limit N]

  --json    one JSON value on stdout
  TIME is Unix seconds, an ISO 8601 date, or an age such as 90s, 15m, 6h, 7d.
  Configuration is by environment variables: see docs/operations.md.`

/** Loaded on demand: a command needs only a small part of the service. */
const commands: Record<string, () => Promise<Command>> = {
  serve: async () => (await import('./serve.ts')).serve,
  migrate: async () => (await import('./migrate.ts')).runMigrate,
  'users create': async () => (await import('./users.ts')).usersCreate,
  'users list': async () => (await import('./users.ts')).usersList,
  'users delete': async () => (await import('./users.ts')).usersDelete,
  'keys create': async () => (await import('./keys.ts')).keysCreate,
  'keys list': async () => (await import('./keys.ts')).keysList,
  'keys revoke': async () => (await import('./keys.ts')).keysRevoke,
  'keys rehash-status': async () => (await import('./keys.ts')).keysRehashStatus,
  'audit find': async () => (await import('./audit.ts')).auditFind,
  'audit list': async () => (await import('./audit.ts')).auditList,
}

const options = {
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean' },
  name: { type: 'string' },
  user: { type: 'string' },
  'rate-limit-rpm': { type: 'string' },
  'expires-at': { type: 'string' },
  reason: { type: 'string' },
  key: { type: 'string' },
  since: { type: 'string' },
  limit: { type: 'string' },
} as const

async function main() {
  const { values, positionals } = parseArgs({ args: process.argv.slice(2), options, allowPositionals: true })
  if (values.help || (positionals.length === 0 && !values.version)) return void console.log(usage)
  if (values.version) return void console.log(version)

  const name = [positionals.slice(0, 2).join(' '), positionals[0]!].find((candidate) =>
    Object.hasOwn(commands, candidate),
  )
  if (name === undefined)
    throw new Error(`no such command: ${positionals.slice(0, 2).join(' ')}; see latchkey --help`)
  const command = await commands[name]!()
  const words = positionals.slice(name.split(' ').length)
  for (const option of Object.keys(values)) {
    if (option !== 'json' && !(command.takes as readonly string[]).includes(option)) {
      throw new Error(`${name} takes no --${option}; see latchkey --help`)
    }
  }
  if (words.length > (command.id ? 1 : 0))
    throw new Error(`${name} takes no "${words.at(-1)}"; see latchkey --help`)
  if (command.id && !words[0]) throw new Error(`${name} needs an id: latchkey ${name} ${command.id}…`)

  const answer = await command.run(readConfig(), { ...values, id: words[0] ?? '' })
  if (answer === undefined) return
  const lines = values.json ? [printableJson(answer.json)] : answer.lines.map(printable)
  process.stdout.write(`${lines.join('\n')}\n`)
}

main().catch((error: Error) => {
  // Someone may have typed a key where an id or a command belongs.
  process.stderr.write(
    `latchkey: ${printable(redactAnyToken(error.message).replaceAll(/\s*\n\s*/g, '; '))}\n`,
  )
  process.exit(1)
})

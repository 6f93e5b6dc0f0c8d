/** All commands, as one tree. A command is loaded when it is called, and what it needs when it runs. */
import type { Command } from 'commander'
import type { Config } from '../config.ts'
import { version } from '../version.ts'
import { command, group, withStores } from './command.ts'
import { workers } from './options.ts'

const serve = command<Partial<Pick<Config, 'workers'>>>('serve', {
  summary: 'run the service',
  example: 'serve',
  options: [workers],
  hasResult: false,
  run: async ({ config, options }) => (await import('./serve.ts')).serve({ ...config, ...options }),
})

const migrate = command('migrate', {
  summary:
    'bring the database schema up to date; every command that opens the database does this too, except doctor',
  example: 'migrate',
  async run({ config }) {
    const applied = await withStores(config, async (stores) => stores.applied, {
      createsDatabase: true,
      onlyReads: true,
    })
    const lines = applied.map(({ version, name }) => `applied ${version} ${name}`)
    return {
      json: { applied },
      lines: lines.length > 0 ? lines : ['nothing to do: the schema is up to date'],
    }
  },
})

const commands: Record<string, () => Promise<Command>> = {
  serve: async () => serve,
  migrate: async () => migrate,
  users: async () => (await import('./users.ts')).usersCommands(),
  keys: async () => (await import('./keys.ts')).keysCommands(),
  audit: async () => (await import('./audit.ts')).auditCommands(),
  usage: async () => (await import('./usage.ts')).usage,
  top: async () => (await import('./top.ts')).top,
  lookup: async () => (await import('./lookup.ts')).lookup,
  doctor: async () => (await import('./doctor.ts')).doctor,
  completion: async () => (await import('./completion.ts')).completionCommand,
}
/** Its scripts name them all. */
const needsAll = 'completion'

/** With the one command that `word` names, or else with all of them. */
export async function program(word = ''): Promise<Command> {
  const isOne = Object.hasOwn(commands, word) && word !== needsAll
  const names = isOne ? [word] : Object.keys(commands)
  const loaded = await Promise.all(names.map((name) => commands[name]!()))
  return group('latchkey', `Latchkey ${version}: mints, verifies, rate-limits and revokes API keys`, loaded)
    .version(version, '--version', 'print the version')
    .addHelpText(
      'after',
      '\nLatchkey is configured by environment variables: see docs/operations.md.\nEvery command has its own --help.',
    )
}

/** All commands, as one tree. What a command needs is loaded when it runs. */
import type { Command } from 'commander'
import type { Config } from '../config.ts'
import { version } from '../version.ts'
import { auditCommands } from './audit.ts'
import { command, group, withStores } from './command.ts'
import { completionCommand } from './completion.ts'
import { doctor } from './doctor.ts'
import { keysCommands } from './keys.ts'
import { lookup } from './lookup.ts'
import { workers } from './options.ts'
import { top } from './top.ts'
import { usage } from './usage.ts'
import { usersCommands } from './users.ts'

const serve = command<Partial<Pick<Config, 'workers'>>>('serve', {
  summary: 'run the service',
  example: 'serve',
  options: [workers],
  run: async ({ config, options }) => (await import('./serve.ts')).serve({ ...config, ...options }),
})

const migrate = command('migrate', {
  summary:
    'bring the database schema up to date; every command that opens the database does this too, except doctor',
  example: 'migrate',
  async run({ config }) {
    const applied = await withStores(config, async (stores) => stores.applied, { createsDatabase: true })
    const lines = applied.map(({ version, name }) => `applied ${version} ${name}`)
    return {
      json: { applied },
      lines: lines.length > 0 ? lines : ['nothing to do: the schema is up to date'],
    }
  },
})

export const program = (): Command =>
  group('latchkey', `Latchkey ${version}: mints, verifies, rate-limits and revokes API keys`, [
    serve,
    migrate,
    usersCommands(),
    keysCommands(),
    auditCommands(),
    usage,
    top,
    lookup,
    doctor,
    completionCommand,
  ])
    .version(version, '--version', 'print the version')
    .addHelpText(
      'after',
      '\nLatchkey is configured by environment variables: see docs/operations.md.\nEvery command has its own --help.',
    )

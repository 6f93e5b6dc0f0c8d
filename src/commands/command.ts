/** What a command is, and what commands share. */
import { fstatSync } from 'node:fs'
import { userInfo } from 'node:os'
import { Command, Help, type Option } from 'commander'
import { type Config, readConfig } from '../config.ts'
import { newId } from '../rules/id.ts'
import type { KeyHasher } from '../rules/key-hasher.ts'
import { printable, printableJson } from '../rules/printable.ts'
import type { Actor, AuditLog, KeyStore, Operator, UserStore } from '../stores.ts'
import type { OpenOptions } from '../wiring/options.ts'
import type { Stores } from '../wiring/stores.ts'

export interface Result {
  json: unknown
  lines: string[]
  /** If set, the command prints its result, then exits with code 1 and this line. */
  fault?: string | undefined
  /** The id of the new key that the result shows. If nobody reads it, that is a fault. */
  newKeyId?: string
}

export interface Call<O> {
  /** Read from the environment on access, so that a command that needs none runs without one. */
  readonly config: Readonly<Config>
  options: O
  args: string[]
}

interface Definition<O> {
  summary: string
  /** A working call, without the leading `latchkey`. */
  example: string
  requires?: Option[]
  options?: Option[]
  /** The command prints no result, so it takes no --json. */
  hasResult?: false
  run(call: Call<O>): Promise<Result | undefined>
}

/** `usage`: the name and the arguments, such as `get <apk_…>`. */
export function command<O = unknown>(usage: string, definition: Definition<O>): Command {
  const { summary, example, requires = [], options = [], hasResult = true, run } = definition
  const [name, ...args] = usage.split(' ')
  const made = strict(new Command(name)).description(summary)
  for (const arg of args) made.argument(arg)
  // Checked here: commander would report the missing option and not the misspelt one.
  for (const { flags, description } of requires) made.option(flags, `${description} (required)`)
  /** The options of this call, as written. */
  const words = new Set<string>()
  for (const option of options)
    made.addOption(option).on(`option:${option.name()}`, () => words.add(option.name()))
  if (hasResult) made.option('--json', 'print one JSON value')
  made.addHelpText('after', `\nExample:\n  latchkey ${example}`)
  return made.action(async () => {
    requireValues(made, process.argv.slice(2))
    const given = made.opts<O & { json?: true }>()
    // Given both, commander would use the last one.
    const both = [...words].find((word) => words.has(`no-${word}`))
    words.clear()
    if (both) throw new Error(`--${both} and --no-${both} contradict each other`)
    requireUtf8([...made.args, ...Object.values(given)])
    const missing = requires.find((option) => !(option.attributeName() in (given as object)))
    if (missing) throw new Error(`${missing.long} is required; see latchkey ${pathOf(made)} --help`)
    if (made.args.some((arg) => arg.trim() === '')) throw new Error(`${pathOf(made)} needs ${args.join(' ')}`)
    const call = { options: given, args: made.args, config: undefined as never }
    const result = await run(Object.defineProperty(call, 'config', { get: () => readConfig() }))
    if (result) print(result, given)
    if (result?.fault) throw new Error(result.fault)
  })
}

/** Commander takes the next option for a value that was forgotten. */
function requireValues({ options }: Command, words: string[]): void {
  const own = ['-h', '--help', ...options.map(({ long }) => long)]
  for (let i = 0; i < words.length && words[i] !== '--'; i++) {
    if (!options.some(({ long, required }) => required && long === words[i])) continue
    const [name, value] = [words[i], words[++i]!]
    if (own.includes(value))
      throw new Error(`${name} needs a value; if it is ${value}, write ${name}=${value}`)
  }
}

/** Node decodes bytes that are not UTF-8 as U+FFFD, which would make different ids equal. */
export function requireUtf8(values: unknown[]): void {
  const garbled = values.find((value) => typeof value === 'string' && value.includes('\ufffd'))
  if (garbled !== undefined) throw new Error(`${garbled} is not UTF-8: use a terminal and files in UTF-8`)
}

/** Node would take a directory for an empty file. */
export const isStdinDirectory = () => fstatSync(process.stdin.fd).isDirectory()

export function group(name: string, summary: string, commands: Command[]): Command {
  const made = strict(new Command(name)).description(summary).helpCommand(false)
  for (const one of commands) made.addCommand(one)
  return made
}

/** All that can be run, without the groups. */
export const leavesOf = (made: Command): Command[] =>
  made.commands.length === 0 ? [made] : made.commands.flatMap(leavesOf)

/** Without `latchkey`. */
export function pathOf(made: Command): string {
  return made.parent === null ? '' : `${pathOf(made.parent)} ${made.name()}`.trim()
}

/** A wrong call is an error of one line for main.ts; help lists commands by their whole name. */
const strict = (made: Command): Command =>
  made
    .helpOption('-h, --help', 'show this help')
    .configureHelp({
      subcommandTerm: pathOf,
      // Not in general: the suggestion for a misspelt command is one of its neighbours.
      formatHelp(cmd, helper) {
        helper.visibleCommands = ({ commands }) => commands.flatMap(leavesOf)
        return Help.prototype.formatHelp.call(helper, cmd, helper)
      },
    })
    // `latchkey users` shows the help of the group, which commander takes for an error.
    .configureOutput({ writeErr: (text) => process.stdout.write(text), outputError: () => {} })
    .exitOverride((error) => {
      if (error.exitCode === 0 || error.code === 'commander.help') throw error
      const help = ['latchkey', pathOf(made), '--help'].filter(Boolean).join(' ')
      const message = error.message
        .replace(/^error: /, '')
        .replace(/\n/g, ' ')
        .replace(/\.$/, '')
      throw new Error(`${message}; see ${help}`)
    })

export function print({ json, lines, newKeyId }: Result, options: { json?: boolean }): void {
  const text = options.json ? printableJson(json) : lines.map(printable).join('\n')
  process.stdout.write(`${text}\n`, (error) => {
    if (newKeyId && error) reportUnwritten(error, newKeyId)
  })
}

export const isReaderGone = ({ code }: NodeJS.ErrnoException) => code === 'EPIPE'

let hasReportedLoss = false

export function reportUnwritten({ message }: Error, lostKeyId?: string): void {
  // After its callback, a failed write also emits an event.
  if (hasReportedLoss) return
  hasReportedLoss = lostKeyId !== undefined
  process.exitCode = 1
  const loss = lostKeyId ? `. Nobody has seen the new key: rotate or revoke ${lostKeyId}` : ''
  process.stderr.write(
    `latchkey: the output could not be written (${message}); what the command did is done${loss}\n`,
  )
}

/** Opens the stores for the work. A service may be running on them. */
export async function withStores<T>(
  config: Config,
  work: (stores: Stores) => Promise<T>,
  needs: Pick<OpenOptions, 'createsDatabase' | 'needsHashSecret' | 'needsKeyPrefix' | 'onlyReads'> = {},
): Promise<T> {
  // Loaded on demand: `--help` and wrong calls need none of it.
  const { openStores } = await import('../wiring/stores.ts')
  const stores = await openStores(config, {
    ...needs,
    role: 'command',
    onProgress: (line) => process.stderr.write(`${printable(line)}\n`),
  })
  try {
    return await work(stores)
  } finally {
    await stores.close()
  }
}

/** What can be read in Postgres alone. */
export interface Readers {
  keys: Pick<KeyStore, 'get' | 'list' | 'countBySecret'>
  users: Pick<UserStore, 'get' | 'list'>
  audit: Pick<AuditLog, 'find' | 'list' | 'countRefusals' | 'now'>
  hasher: KeyHasher
}

/** Opens what the work reads. Redis is not connected: that would take longer than most reads. */
export const withReaders = <T>(config: Config, work: (readers: Readers) => Promise<T>): Promise<T> =>
  withStores(config, work, { onlyReads: true })

export const noKey = (id: string) => new Error(`there is no key ${id}`)
export const noUser = (id: string) => new Error(`there is no user ${id}`)

/** The operator in the audit log. */
export const operator = (): Operator => `cli:${osUser()}`

/** Each command counts as a request. */
export const actor = (): Actor => ({
  requestId: newId('req_'),
  keyId: null,
  operator: operator(),
  method: null,
  path: null,
  ip: null,
  userAgent: 'latchkey command line',
})

/** In a container, the user may have a number only. */
function osUser(): string {
  try {
    return userInfo().username
  } catch {
    return String(process.getuid?.() ?? 'unknown')
  }
}

/**
 * Lines of aligned columns. `head` is null for lists of name and value. `minWidths`: of each column,
 * for a table that is printed in parts.
 */
export function table(head: string[] | null, rows: string[][], minWidths: number[] = []): string[] {
  const lines = (head ? [head, ...rows] : rows).map((row) => row.map(printable))
  const widths = (lines[0] ?? []).map((_, i) =>
    lines.reduce((max, row) => Math.max(max, row[i]!.length), minWidths[i] ?? 0),
  )
  return lines.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join('  ')
      .trimEnd(),
  )
}

export const moment = (unixS: number | null): string =>
  unixS === null ? '-' : new Date(unixS * 1000).toISOString().replace('.000', '')

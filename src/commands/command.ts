/** What a command is, and what commands share. */
import { userInfo } from 'node:os'
import { nameMaxLength, namePattern } from '../../schemas/key.ts'
import type { Config } from '../config.ts'
import { newId } from '../rules/id.ts'
import { tokenFormat } from '../rules/token.ts'
import type { Actor } from '../stores.ts'
import type { OpenOptions } from '../wiring/options.ts'
import { openStores, type Stores } from '../wiring/stores.ts'
import { printable } from './printable.ts'

export interface Args {
  /** "" if the command takes none. */
  id: string
  name?: string
  user?: string
  'rate-limit-rpm'?: string
  'expires-at'?: string
  reason?: string
  key?: string
  since?: string
  limit?: string
  json?: boolean
}

export interface Command {
  /** The options it takes, besides --json. */
  takes: readonly (keyof Args)[]
  /** The prefix of the id it takes, if any. */
  id?: 'usr_' | 'apk_' | 'req_'
  run(config: Config, args: Args): Promise<{ json: unknown; lines: string[] } | undefined>
}

/** Opens the stores for the work. A service may be running on them. */
export async function withStores<T>(
  config: Config,
  work: (stores: Stores) => Promise<T>,
  needs: Pick<OpenOptions, 'createsDatabase' | 'mintsKeys'> = {},
): Promise<T> {
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

/** The operator in the audit log. Each command counts as a request. */
export const operator = (): Actor => ({
  requestId: newId('req_'),
  keyId: null,
  operator: `cli:${osUser()}`,
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

export function requiredName(args: Args, { tokenPrefix }: Pick<Config, 'tokenPrefix'>): string {
  const { name } = args
  if (name === undefined) throw new Error('--name is required')
  if ([...name].length > nameMaxLength || !new RegExp(namePattern, 'u').test(name)) {
    throw new Error(
      `--name must have 1 to ${nameMaxLength} characters, not only blanks, without control characters`,
    )
  }
  if (tokenFormat(tokenPrefix).isIn(name))
    throw new Error('--name contains an API key; names are stored and shown')
  return name
}

export function wholeNumber(option: string, text: string, min: number, max: number): number {
  const value = Number(text)
  if (/^[0-9]+$/.test(text) && value >= min && value <= max) return value
  throw new Error(`--${option} must be a whole number from ${min} to ${max}`)
}

/** Lines of aligned columns. `head` is null for lists of name and value. */
export function table(head: string[] | null, rows: string[][]): string[] {
  const lines = (head ? [head, ...rows] : rows).map((row) => row.map(printable))
  const widths = (lines[0] ?? []).map((_, i) => lines.reduce((max, row) => Math.max(max, row[i]!.length), 0))
  return lines.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join('  ')
      .trimEnd(),
  )
}

export const moment = (unixS: number | null): string =>
  unixS === null ? '-' : new Date(unixS * 1000).toISOString().replace('.000', '')

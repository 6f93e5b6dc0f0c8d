/** The options of the commands, and what their texts mean. */
import { Option } from 'commander'
import {
  auditEvents,
  auditReasons,
  expiresAtEndS,
  graceMaxS,
  keyStates,
  listLimitMax,
  nameMaxLength,
  namePattern,
  rateLimitMax,
  usageSteps,
} from '../../schemas/bounds.ts'
import { type Config, parseWorkers, wholeNumber, workersRule } from '../config.ts'
import { tokenFormat } from '../rules/token.ts'

const option = (flags: string, description: string) => new Option(flags, description)

const oneOf = (flags: string, description: string, choices: readonly string[]) => {
  const made = option(flags, description).choices(choices)
  return made.argParser((text: string) => {
    if (choices.includes(text)) return text
    throw new Error(`${made.long} must be one of ${choices.join(', ')}`)
  })
}

const number = (flags: string, description: string, max: number, min = 1) => {
  const made = option(flags, description)
  return made.argParser((text: string) => {
    const value = wholeNumber(text, min, max)
    if (value === undefined) throw new Error(`${made.long} must be a whole number from ${min} to ${max}`)
    return value
  })
}

const time = (flags: string, description: string) => {
  const made = option(flags, description)
  return made.argParser((text: string) => timeOf(made.long!, text))
}

const auditLimitMax = 10_000

export const name = option('--name <name>', 'a label for people')
export const externalId = option('--external-id <id>', "this user's id in your own system")
export const noExternalId = option('--no-external-id', 'remove the external id')
export const revoke = option('--revoke', 'revoke the keys that are found')
export const user = option('--user <usr_…>', 'the owner of the key')
export const rateLimitRpm = number('--rate-limit-rpm <n>', 'allowed requests per minute', rateLimitMax)
export const newRateLimitRpm = number(
  '--rate-limit-rpm <n>',
  'allowed requests per minute (default: DEFAULT_RATE_LIMIT_RPM)',
  rateLimitMax,
)
/** Throws an error where the operator allows less. */
export function checkRateLimit(rpm: number, { maxRateLimitRpm }: Pick<Config, 'maxRateLimitRpm'>): void {
  if (rpm > maxRateLimitRpm)
    throw new Error(`--rate-limit-rpm must be at most ${maxRateLimitRpm} (MAX_RATE_LIMIT_RPM)`)
}
export const expiresAt = option(
  '--expires-at <time>',
  'the key is refused from then on: Unix seconds, or an ISO 8601 date (UTC unless it has a zone)',
).argParser(expiryS)
export const expiresIn = number(
  '--expires-in <s>',
  'seconds for which the old key still works (default: 0)',
  graceMaxS,
  0,
)
export const noExpiry = option('--no-expires-at', 'remove the expiry')
export const prefix = option('--prefix <characters>', 'the first characters of a key: all that are shown')
export const status = oneOf('--status <state>', 'only keys in this state', keyStates)
export const key = option('--key <apk_…>', 'only entries about this key')
export const aboutUser = option('--user <usr_…>', 'only entries about this user')
export const reason = oneOf('--reason <reason>', 'only refusals with this reason', auditReasons)
export const event = oneOf('--event <event>', 'only entries of this kind', auditEvents)
const sinceText =
  'from this time on: Unix seconds, an ISO 8601 date (UTC unless it has a zone), or an age (15m, 6h)'
export const since = time('--since <time>', sinceText)
export const statsSince = time('--since <time>', `${sinceText} (default: an hour before --until or now)`)
export const until = time('--until <time>', 'before this time; same formats as --since')
export const workers = option(
  '--workers <n>',
  'processes that share the port, each an instance with an ops listener of its own; auto: one for each core',
).argParser((text: string) => {
  const count = parseWorkers(text)
  if (count === undefined) throw new Error(`--workers must be ${workersRule}`)
  return count
})
export const follow = option('--follow', 'print new entries as they come, until Ctrl-C').conflicts('until')
export const rows = number(
  '--limit <n>',
  'maximum number of keys and of addresses; all reasons are shown',
  1000,
).default(10)
export const topRows = number('--limit <n>', 'maximum number of keys', listLimitMax).default(20)
export const sort = oneOf('--sort <order>', 'by requests, or by their share of the limit', ['used', 'share'])
export const step = oneOf('--step <step>', 'the length of a step; default minute', usageSteps)
export const listLimitDefault = 100
/** Entries shown before the first new one. */
export const followLimitDefault = 10
export const limit = number(
  '--limit <n>',
  `maximum number of entries, newest first (default: ${listLimitDefault}, or ${followLimitDefault} with --follow)`,
  auditLimitMax,
)

const unitS = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Takes what time it is, by the clock that an age counts back from. All in Unix seconds. */
export type Time = (nowS: number) => number

/** Unix seconds, an ISO 8601 date, or an age such as 15m. */
export function timeOf(name: string, text: string): Time {
  const age = /^([0-9]+)([smhd])$/.exec(text)
  if (age) return (nowS) => Math.max(0, nowS - Number(age[1]) * unitS[age[2] as keyof typeof unitS])
  const atS = momentS(name, text)
  if (atS !== null) return () => atS
  throw new Error(`${name} must be Unix seconds, an ISO 8601 date, or an age such as 90s, 15m, 6h, 7d`)
}

export function expiryS(text: string): number {
  const atS = Math.floor(momentS('--expires-at', text) ?? 0)
  if (atS >= 1 && atS < expiresAtEndS) return atS
  throw new Error(
    `--expires-at must be Unix seconds from 1 to ${expiresAtEndS - 1}, or an ISO 8601 date such as 2030-01-31`,
  )
}

const compactDate = /^((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$/
const isoDate = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:?\d\d)?)?$/

/**
 * Null if it is neither Unix seconds nor a date that exists. Without a zone it is UTC, like every time
 * that we print.
 */
function momentS(name: string, text: string): number | null {
  const compact = compactDate.exec(text)
  if (compact) throw new Error(`${name}: write the date ${text} as ${compact.slice(1).join('-')}`)
  if (/^[0-9]{1,11}$/.test(text)) return Number(text)
  const [, date, time = '00:00', zone = 'Z'] = isoDate.exec(text) ?? []
  const ms = Date.parse(`${date}T${time}${zone}`)
  // Date.parse takes February 30 for March 2.
  return Number.isNaN(ms) || !new Date(`${date}T00:00Z`).toISOString().startsWith(date!) ? null : ms / 1000
}

/** Names and external ids are stored and shown, so they must not contain a key. */
export function checkLabel(option: string, text: string, { tokenPrefix }: Pick<Config, 'tokenPrefix'>): void {
  if ([...text].length > nameMaxLength || !new RegExp(namePattern, 'u').test(text)) {
    throw new Error(
      `${option} must have 1 to ${nameMaxLength} characters, not only blanks, without control characters`,
    )
  }
  if (tokenFormat(tokenPrefix).isIn(text))
    throw new Error(`${option} contains an API key; what you send is stored and shown`)
}

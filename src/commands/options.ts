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
import type { Config } from '../config.ts'
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
  return made.argParser((text: string) => wholeNumber(made.long!, text, min, max))
}

const time = (flags: string, description: string) => {
  const made = option(flags, description)
  return made.argParser((text: string) => timeS(made.long!, text, Date.now() / 1000))
}

const auditLimitMax = 10_000

export const name = option('--name <name>', 'a label for people')
export const externalId = option('--external-id <id>', "this user's id in your own system")
export const noExternalId = option('--no-external-id', 'remove the external id')
export const revoke = option('--revoke', 'revoke the active keys that are found')
export const user = option('--user <usr_…>', 'the owner of the key')
export const rateLimitRpm = number('--rate-limit-rpm <n>', 'allowed requests per minute', rateLimitMax)
export const expiresAt = number(
  '--expires-at <s>',
  'expiry in Unix seconds; the key is refused from then on',
  expiresAtEndS - 1,
)
export const expiresIn = number(
  '--expires-in <s>',
  'seconds for which the old key still works (default: 0)',
  graceMaxS,
  0,
)
export const noExpiry = option('--no-expires-at', 'remove the expiry')
export const prefix = option('--prefix <characters>', 'the first characters of a key, as shown')
export const status = oneOf('--status <state>', 'only keys in this state', keyStates)
export const key = option('--key <apk_…>', 'only entries about this key')
export const aboutUser = option('--user <usr_…>', 'only entries about this user')
export const reason = oneOf('--reason <reason>', 'only refusals with this reason', auditReasons)
export const event = oneOf('--event <event>', 'only entries of this kind', auditEvents)
export const since = time(
  '--since <time>',
  'from this time on: Unix seconds, an ISO 8601 date, or an age (15m, 6h)',
)
export const until = time('--until <time>', 'before this time; same formats as --since')
export const follow = option('--follow', 'print new entries as they come, until Ctrl-C').conflicts('until')
export const rows = number('--limit <n>', 'maximum number of rows in each table', 1000)
export const topRows = number('--limit <n>', 'maximum number of keys', listLimitMax)
export const sort = oneOf('--sort <order>', 'by requests, or by their share of the limit', ['used', 'share'])
export const step = oneOf('--step <step>', 'the length of a step; default minute', usageSteps)
export const limit = number('--limit <n>', 'maximum number of entries, newest first', auditLimitMax)

export function wholeNumber(name: string, text: string, min: number, max: number): number {
  const value = Number(text)
  if (/^[0-9]+$/.test(text) && value >= min && value <= max) return value
  throw new Error(`${name} must be a whole number from ${min} to ${max}`)
}

const unitS = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Unix seconds, an ISO 8601 date, or an age such as 15m, as Unix seconds. */
export function timeS(name: string, text: string, nowS: number): number {
  const age = /^([0-9]+)([smhd])$/.exec(text)
  if (age) return Math.max(0, nowS - Number(age[1]) * unitS[age[2] as keyof typeof unitS])
  if (/^[0-9]{1,11}$/.test(text)) return Number(text)
  const ms = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(ms))
    throw new Error(`${name} must be Unix seconds, an ISO 8601 date, or an age such as 90s, 15m, 6h, 7d`)
  return ms / 1000
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

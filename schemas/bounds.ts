/**
 * Bounds and lists of values that schemas state. In a file of their own, because commands need no
 * schema and loading TypeBox takes 0.1 s.
 */
import {
  type OperatorRefusalReason,
  operatorRefusalReasons,
  type RefusalReason,
  refusalReasons,
} from './refusal.ts'

/** 2100-01-01T00:00:00Z. A later time is probably in the wrong unit. */
export const expiresAtEndS = 4_102_444_800
export const rateLimitMax = 1_000_000_000
export const nameMaxLength = 255
/** Characters in a look-up: a browser's "Copy as cURL" has a dozen headers and all cookies around a key. */
export const lookupMaxLength = 8192

/**
 * Not blank, no control character (Cc), no lone surrogate (Cs): text that fits into Postgres and a
 * log line. Needs the flag `u`.
 */
export const namePattern = '^[^\\p{Cc}\\p{Cs}]*[^\\p{Cc}\\p{Cs}\\s][^\\p{Cc}\\p{Cs}]*$'

/**
 * As a name, but with any white space, such as the line breaks of a pasted command. Needs the flag
 * `u`.
 */
export const lookupPattern = '^\\s*[^\\p{Cc}\\p{Cs}\\s]([^\\p{Cc}\\p{Cs}]|[\\t-\\r])*$'

/** At most `KEY_PREFIX` (16), an underscore and 4 characters: a whole key does not fit. */
export const displayPrefixPattern = '^[0-9A-Za-z_]{1,21}$'

/** A year. */
export const graceMaxS = 31_536_000

export const keyStates = ['active', 'revoked', 'expired'] as const
export type KeyState = (typeof keyStates)[number]
/** `owner_deleted`: active, but its owner is deleted. */
export const operatorKeyStates = [...keyStates, 'owner_deleted'] as const

/** Ours, or what an application gives its requests (`createGuard`): visible ASCII characters. */
export const requestIdPattern = '^[!-~]{1,64}$'

export const listLimitMax = 100

/** The steps of a history, each with its length in seconds. Hours and days begin in UTC. */
export const usageStepS = { minute: 60, hour: 3600, day: 86_400 } as const
export type UsageStep = keyof typeof usageStepS
export const usageSteps = Object.keys(usageStepS) as UsageStep[]

export const usagePointsMax = 1500

export const refusalEvents = ['auth.refused', 'operator.refused'] as const
export const auditEvents = [
  ...refusalEvents,
  'key.created',
  'key.updated',
  'key.rotated',
  'key.revoked',
  'user.created',
  'user.updated',
  'user.keys_revoked',
  'user.deleted',
] as const
export type AuditEvent = (typeof auditEvents)[number]
export const auditReasons = [...refusalReasons, ...operatorRefusalReasons] as const
export type AuditReason = RefusalReason | OperatorRefusalReason

/**
 * Who sent a request and whether it may pass, apart from any framework: how a key is presented, and
 * what each refusal answers. The plugins and the guard share it.
 */
import type { RefusalReason } from '../schemas/refusal.ts'
import { ApiError, unavailable } from './api-error.ts'

/** Who sent the request. A host application may add members of its own. */
export interface Caller {
  readonly id: string
  readonly userId: string
  /** Requests per minute. */
  readonly rateLimitRpm: number
  /** Unix seconds, or null. */
  readonly expiresAt: number | null
}

export interface Denied {
  readonly ok: false
  readonly reason: RefusalReason
  /** The key and its owner, if the token is known. */
  readonly keyId?: string
  readonly userId?: string
}
export type Verdict<C extends Caller = Caller> = { readonly ok: true; readonly caller: C } | Denied

export interface Counted<C extends Caller = Caller> {
  readonly ok: true
  /**
   * The caller as of this count, which is newer than the one authenticated if the key has changed
   * since.
   */
  readonly caller: C
  /** This request's number in the minute, from 1. */
  readonly count: number
  /**
   * The counting server's clock, Unix milliseconds: window, reset and Retry-After all come from it.
   */
  readonly nowMs: number
  /** When the minute ends, Unix seconds. */
  readonly resetAtS: number
}

/** What to answer in place of the application. */
export interface Answer {
  status: 401 | 429 | 503
  headers: Record<string, string>
  /** The error envelope, as JSON. */
  body: string
}

const missingHeader: Denied = { ok: false, reason: 'missing_header' }
const wrongScheme: Denied = { ok: false, reason: 'wrong_scheme' }
const wrongPrefix: Denied = { ok: false, reason: 'wrong_prefix' }

/** `Bearer`, exactly one space, and one token68 (RFC 9110, 11.2): no quotes, nothing after it. */
const credentials = /^Bearer ([A-Za-z0-9\-._~+/]+=*)$/

/**
 * The token of the one Authorization header. Node's `headers` hides a second one, so the raw list
 * is read. `start`: how each token begins.
 */
export function presentedToken(rawHeaders: readonly string[], start: string): string | Denied {
  let value: string | undefined
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    if (name.length !== 13 || (name !== 'Authorization' && name.toLowerCase() !== 'authorization')) continue
    if (value !== undefined) return wrongScheme
    value = rawHeaders[i + 1]!
  }
  return tokenIn(value, start)
}

/** The token in the value of an Authorization header. An array holds the value of each header. */
export function tokenIn(
  value: string | readonly string[] | null | undefined,
  start: string,
): string | Denied {
  if (typeof value === 'object' && value !== null) {
    if (value.length > 1) return wrongScheme
    value = value[0]
  }
  if (value === undefined || value === null) return missingHeader
  const token = credentials.exec(value)?.[1]
  if (token === undefined) return wrongScheme
  return token.startsWith(start) ? token : wrongPrefix
}

/**
 * The answer to a refused request: the 401, once `record` has stored the reason. If `record` rejects,
 * its ApiError, or else a 503. Never rejects.
 */
export async function refusal(
  record: () => Promise<void>,
  { start, realm = 'latchkey' }: { start: string; realm?: string | undefined },
): Promise<ApiError> {
  try {
    await record()
  } catch (cause) {
    return cause instanceof ApiError ? cause : unavailable(cause)
  }
  return new ApiError('unauthorized', {
    param: 'authorization',
    suggestion: `Send \`Authorization: Bearer ${start}...\` and check that the key is active.`,
    headers: { 'www-authenticate': `Bearer realm="${realm}"` },
  })
}

/** How many more requests this minute admits. */
export const remainingOf = ({
  caller: { rateLimitRpm },
  count,
}: Pick<Counted, 'caller' | 'count'>): number => (count < rateLimitRpm ? rateLimitRpm - count : 0)

/** The 429, or null for a request within the limit. */
export function overLimit({ caller, count, nowMs, resetAtS }: Counted): ApiError | null {
  if (count <= caller.rateLimitRpm) return null
  const retryAfterS = Math.ceil(resetAtS - nowMs / 1000)
  return new ApiError('rate_limit_exceeded', { headers: { 'retry-after': String(retryAfterS) } })
}

/**
 * Decides whether a request may use the cached copy of its key. A pure function of the counter's
 * reply.
 */
import type { CountReply } from '../stores.ts'
import type { CachedKey } from './key-cache.ts'

/**
 * - admit: the copy is valid.
 * - refresh_ahead: admit now, and read the key again in the background.
 * - read_first: read the key again before deciding.
 * - read_or_go_on: read the key again, but fall back on the copy if Postgres does not answer soon.
 */
export type Decision = 'admit' | 'refresh_ahead' | 'read_first' | 'read_or_go_on'

/**
 * How far copies are trusted. One object for the gate's lifetime, so that a request with a cached
 * key allocates nothing here.
 */
export interface Trust {
  /** How long a copy is trusted while the shared counter confirms its version. */
  readonly cacheTtlMs: number
  /** How long a copy is trusted without a shared counter; 0 means never. */
  readonly degradedCacheTtlMs: number
  /** No copy read before this moment is trusted (performance.now). */
  invalidBeforeMs: number
  /** Whether the last look-up failed. */
  postgresDown: boolean
}

/** How long a confirmed copy is used while Postgres is down. */
export const postgresDownMs = 60_000

/** `version`: the key's version in the counter; 0 if none is known, below 0 if it is unreadable. */
export function decide(
  key: Pick<CachedKey, 'version' | 'readAtMs' | 'expiresAtMonoMs'>,
  version: number,
  { monoMs, shared }: CountReply,
  trust: Trust,
): Decision {
  const isCurrent =
    version >= 0 &&
    version <= key.version &&
    monoMs < key.expiresAtMonoMs &&
    key.readAtMs >= trust.invalidBeforeMs
  if (!isCurrent) return 'read_first'
  const ageMs = monoMs - key.readAtMs
  if (!shared) return ageMs < trust.degradedCacheTtlMs ? 'admit' : 'read_first'
  // A busy key is read again after half its time, so that no request waits for Postgres.
  if (ageMs < trust.cacheTtlMs) return ageMs > trust.cacheTtlMs / 2 ? 'refresh_ahead' : 'admit'
  if (ageMs >= postgresDownMs) return 'read_first'
  return trust.postgresDown ? 'refresh_ahead' : 'read_or_go_on'
}

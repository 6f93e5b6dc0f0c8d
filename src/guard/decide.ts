/** Whether a request may be answered from the cached copy of its key. A pure function of what the count brought. */
import type { CountReply } from '../stores.ts'
import type { CachedKey } from './key-cache.ts'

/**
 * - admit: the copy is good.
 * - refresh_ahead: admit now, and read the key again in the background.
 * - read_first: nothing but a new reading decides.
 * - read_or_go_on: read, but fall back on the copy if Postgres does not answer soon.
 */
export type Decision = 'admit' | 'refresh_ahead' | 'read_first' | 'read_or_go_on'

/** What a copy is trusted by. One object for the gate's lifetime: a request from a cached key allocates nothing here. */
export interface Trust {
  /** How long a copy is trusted while the shared counter confirms its version. */
  readonly cacheTtlMs: number
  /** And how long without a shared counter; 0: never. */
  readonly degradedCacheTtlMs: number
  /** No copy read before this moment is trusted (performance.now). */
  invalidBeforeMs: number
  /** Whether the last look-up failed. */
  postgresDown: boolean
}

/** While Postgres is down a confirmed copy is used for this long. */
export const postgresDownMs = 60_000

/** `version`: the key's as the counter knows it; 0 if it knows none, below 0 if it is unreadable. */
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
  // A busy key is read again at half its time, so that no request waits for Postgres.
  if (ageMs < trust.cacheTtlMs) return ageMs > trust.cacheTtlMs / 2 ? 'refresh_ahead' : 'admit'
  if (ageMs >= postgresDownMs) return 'read_first'
  return trust.postgresDown ? 'refresh_ahead' : 'read_or_go_on'
}

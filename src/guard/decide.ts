/**
 * Decides whether a request may use the cached copy of its key. A pure function of the counter's
 * reply.
 */
import type { CountReply, Lease } from '../stores.ts'
import type { CachedKey } from './key-cache.ts'
import type { OldCopies } from './old-copies.ts'

/**
 * - admit: the copy is valid.
 * - refresh_ahead: admit now, and read the key again in the background.
 * - read_first: read the key again before deciding.
 * - read_or_go_on: read the key again, and use the copy only if that fails.
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
  /** A look-up has just failed: until then, requests do not wait for another one. */
  postgresDownUntilMs: number
  /** How long a confirmed copy may be used while Postgres is down. */
  readonly outageTtlMs: number
  /** Which copies this instance may go on with while Postgres is down, and until when. */
  readonly oldCopies: OldCopies['allowed']
}

/** The version that a key must have at least. */
export const minVersionOf = (version: number | Lease) => Number.parseInt(String(version), 10)

/** `version`: the key's version in the counter, or a lease if that confirms none. */
export function decide(
  key: Pick<CachedKey, 'version' | 'readAtMs' | 'expiresAtMonoMs' | 'ownReadOf'>,
  version: number | Lease,
  { monoMs, shared }: CountReply,
  trust: Trust,
): Decision {
  // No change answered before the request can be missing from a read that began after it. Where the
  // counter has a lease, the next read confirms the version for the requests that follow.
  if (key.ownReadOf !== null && minVersionOf(version) <= key.version && monoMs < key.expiresAtMonoMs)
    return typeof version === 'string' ? 'refresh_ahead' : 'admit'
  const isCurrent =
    typeof version === 'number' &&
    version <= key.version &&
    monoMs < key.expiresAtMonoMs &&
    key.readAtMs >= trust.invalidBeforeMs
  if (!isCurrent) return 'read_first'
  const ageMs = monoMs - key.readAtMs
  if (!shared) return ageMs < trust.degradedCacheTtlMs ? 'admit' : 'read_first'
  // A busy key is read again after half its time, so that no request waits for Postgres.
  if (ageMs < trust.cacheTtlMs) return ageMs > trust.cacheTtlMs / 2 ? 'refresh_ahead' : 'admit'
  if (!mayGoOn(key, monoMs, trust)) return 'read_first'
  return monoMs < trust.postgresDownUntilMs ? 'refresh_ahead' : 'read_or_go_on'
}

/** Whether a copy that has to be read again may be used if that fails. */
export function mayGoOn(
  { readAtMs }: Pick<CachedKey, 'readAtMs'>,
  monoMs: number,
  { outageTtlMs, oldCopies }: Trust,
): boolean {
  return monoMs - readAtMs < outageTtlMs && readAtMs >= oldCopies.fromMs && monoMs < oldCopies.untilMs
}

/**
 * A gate between a counter and a key store that the test controls. Moving the counter's clock lets
 * time pass.
 */
import type { Denied } from '../../plugins/authenticate.ts'
import type { Counted } from '../../plugins/rate-limit.ts'
import { createGate, type GateOptions } from '../../src/guard/gate.ts'
import { type CachedKey, createKeyCache } from '../../src/guard/key-cache.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import type { CountReply, KeyCredential, KeyVersion, Lease, ServerRole } from '../../src/stores.ts'

export const hashSecret = 'a secret of the tests, thirty-two characters at least'
export const token = 'lk_0123456789abcdefghijklmnopqrstuvABCDEF'
export const { hash } = keyHasher(hashSecret).hashesOf(token)

export function gated(options: Partial<GateOptions> = {}) {
  /** What Postgres has and does. */
  const postgres = {
    key: usableKey() as KeyCredential | null,
    role: 'primary' as ServerRole,
    readings: [] as string[][],
    /** Runs before each answer; may reject. */
    before: async () => {},
  }
  /** What the counter says, `aheadMs` later than now. */
  const counter = {
    version: 0 as number | Lease,
    shared: true,
    aheadMs: 0,
    nowMs: 1_767_225_612_345,
    count: 0,
    full: false,
  }
  const cache = createKeyCache(1000)
  const uses: [string, number][] = []
  const shed: string[] = []
  const confirmed: [KeyVersion, Lease][] = []
  const raised: KeyVersion[] = []
  const gate = createGate({
    cache,
    hasher: keyHasher(hashSecret),
    lookupTimeoutMs: 1000,
    cacheTtlMs: 5000,
    degradedCacheTtlMs: 0,
    outageTtlMs: 60_000,
    oldCopies: { fromMs: 0, untilMs: Infinity },
    unchanged: { latest: { asOfMs: 0 }, renew() {} },
    onUse: ({ id }, atS) => uses.push([id, atS]),
    onStaleHash: () => {},
    onShed: (queue) => shed.push(queue),
    keys: {
      async findByHash(hashes) {
        postgres.readings.push(hashes)
        await postgres.before()
        const { key } = postgres
        return {
          found: key !== null && hashes.includes(key.hash) ? [key] : [],
          role: postgres.role,
          server: '1',
        }
      },
    },
    counter: {
      confirm: (one, lease) => confirmed.push([one, lease]),
      async raise(versions) {
        raised.push(...versions)
        return true
      },
      hit(_keyId, onCounted) {
        if (counter.full) return false
        const turn: CountReply = {
          nowMs: counter.nowMs,
          monoMs: performance.now() + counter.aheadMs,
          shared: counter.shared,
        }
        onCounted(++counter.count, counter.version, turn)
        return true
      },
    },
    ...options,
  })

  const verify = (asked = token) =>
    new Promise<CachedKey | Denied>((resolve, reject) => {
      gate.verify(asked, (error, verdict) => {
        if (error !== null || verdict === undefined) return reject(error)
        resolve(verdict.ok ? verdict.caller : verdict)
      })
    })
  const hit = (key: CachedKey) =>
    new Promise<Counted<CachedKey> | Denied>((resolve, reject) => {
      gate.hit(key, (error, counted) => {
        if (error !== null || counted === undefined) return reject(error)
        resolve(counted)
      })
    })
  /** The key, cached by its first request. */
  async function cached(): Promise<CachedKey> {
    const found = await verify()
    if ('ok' in found) throw new Error(`refused: ${found.reason}`)
    await hit(found)
    postgres.readings.length = 0
    uses.length = 0
    return cache.get(cache.nameOf(token))!
  }
  return { gate, cache, postgres, counter, uses, shed, confirmed, raised, verify, hit, cached }
}

/** A cached copy. The same one each time, unless `more` says otherwise. */
export const cachedKey = (more: Partial<CachedKey> = {}): CachedKey => ({
  id: 'apk_1',
  userId: 'usr_1',
  rateLimitRpm: 1000,
  expiresAt: null,
  expiresAtMonoMs: Infinity,
  cacheName: 'name',
  hash,
  previousHash: null,
  version: 4,
  readAtMs: 0,
  server: '1',
  touchedS: 0,
  refreshing: false,
  hasStaleHash: false,
  ownReadOf: null,
  ...more,
})

export const usableKey = (more: Partial<KeyCredential> = {}): KeyCredential => ({
  hash,
  id: 'apk_1',
  userId: 'usr_1',
  rateLimitRpm: 1000,
  version: 4,
  expiresAt: null,
  revokedAt: null,
  ownerDeleted: false,
  nowS: 1_767_225_612,
  ...more,
})

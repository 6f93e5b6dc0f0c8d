// A hit that found no room to be counted is shed: its request is neither admitted nor refused.
import t from 'tap'
import { createGate } from '../../src/guard/gate.ts'
import { type CachedKey, createKeyCache } from '../../src/guard/key-cache.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { type Counter, type CountReply, Unavailable } from '../../src/stores.ts'

const turn: CountReply = { nowMs: 0, monoMs: performance.now(), shared: true }

const ways: Record<string, Counter['hit']> = {
  'at once': () => false,
  'after it had waited': (_keyId, onCounted) => {
    onCounted(0, 0, turn)
    return true
  },
}

for (const [when, hit] of Object.entries(ways)) {
  t.test(`a hit that is not counted ${when} is a 503`, async (t) => {
    const shed: string[] = []
    const gate = createGate({
      keys: { findByHash: async () => [] },
      counter: { mode: 'local', outages: [], hit, raise: async () => false, close: async () => {} },
      cache: createKeyCache(1),
      hasher: keyHasher('a secret'),
      cacheTtlMs: 5000,
      degradedCacheTtlMs: 0,
      lookupTimeoutMs: 1000,
      onUse() {},
      onStaleHash() {},
      onShed: (queue) => shed.push(queue),
    })
    const caller: CachedKey = {
      id: 'apk_1',
      userId: 'usr_1',
      rateLimitRpm: 5,
      expiresAt: null,
      version: 0,
      cacheName: 'name',
      hash: '00',
      previousHash: null,
      readAtMs: 0,
      expiresAtMonoMs: Number.POSITIVE_INFINITY,
      touchedS: 0,
      refreshing: false,
    }
    const error = await new Promise((resolve) => gate.hit(caller, resolve))
    t.type(error, Unavailable)
    t.strictSame(shed, ['counter'])
  })
}

// Every combination of what the gate may know when a count arrives, and what it does then.
import t from 'tap'
import { type Decision, decide, type Trust } from '../../src/guard/decide.ts'
import type { CachedKey } from '../../src/guard/key-cache.ts'
import type { Lease } from '../../src/stores.ts'

const cacheTtlMs = 5000
/** For the only instance on an embedded database, without Redis. */
const aloneTtlMs = 1000
const readAtMs = 1_000_000

/** As text, the newer one would come first. */
const versions = { 'none known': 0, older: 8, same: 9, newer: 10, 'a lease': '9?1.2' } as const
const trustedVersions: readonly string[] = ['none known', 'older', 'same']
const counters = {
  'counted in Redis': { shared: true, degradedCacheTtlMs: 0 },
  'counted locally while Redis is down': { shared: false, degradedCacheTtlMs: 0 },
  'counted in memory, alone': { shared: false, degradedCacheTtlMs: aloneTtlMs },
} as const
const ages = [0, 499, 500, 501, 999, 1000, 2500, 2501, 4999, 5000, 59_999, 60_000, 600_000]

/**
 * The decision on a current copy of this age: from (ms), to (exclusive), with Postgres up, with
 * Postgres down.
 */
const expected: Record<keyof typeof counters, [number, number, Decision, Decision][]> = {
  'counted in Redis': [
    [0, 2501, 'admit', 'admit'],
    [2501, 5000, 'refresh_ahead', 'refresh_ahead'],
    [5000, 60_000, 'read_or_go_on', 'refresh_ahead'],
    [60_000, Infinity, 'read_first', 'read_first'],
  ],
  'counted locally while Redis is down': [[0, Infinity, 'read_first', 'read_first']],
  'counted in memory, alone': [
    [0, 1000, 'admit', 'admit'],
    [1000, Infinity, 'read_first', 'read_first'],
  ],
}

for (const counting of Object.keys(counters) as (keyof typeof counters)[]) {
  t.test(`${counting}: every age, version, expiry and state of Postgres`, async (t) => {
    for (const ageMs of ages) {
      const [, , whenUp, whenDown] = expected[counting].find(([from, to]) => ageMs >= from && ageMs < to)!
      for (const [name, version] of Object.entries(versions))
        for (const postgresDown of [false, true])
          for (const expired of [false, true])
            for (const invalidated of [false, true]) {
              const current = trustedVersions.includes(name) && !expired && !invalidated
              const wanted = !current ? 'read_first' : postgresDown ? whenDown : whenUp
              const { shared, degradedCacheTtlMs } = counters[counting]
              const monoMs = readAtMs + ageMs
              const key = {
                ...{ version: versions.same, readAtMs, ownReadOf: null },
                expiresAtMonoMs: expired ? monoMs : monoMs + 1,
              }
              const trust: Trust = {
                cacheTtlMs,
                degradedCacheTtlMs,
                invalidBeforeMs: invalidated ? readAtMs + 1 : readAtMs,
                postgresDownUntilMs: postgresDown ? monoMs + 1 : monoMs,
                outageTtlMs: 60_000,
                oldCopies: { fromMs: readAtMs, untilMs: monoMs + 1 },
              }
              const decision = decide(key, version, { nowMs: 0, monoMs, shared }, trust)
              if (decision !== wanted)
                t.equal(decision, wanted, JSON.stringify({ ageMs, version: name, ...trust, expired }))
            }
    }
    t.pass('as the table says')
  })
}

t.test('with KEY_CACHE_SECONDS=0 every request waits for a reading, unless Postgres is down', async (t) => {
  const key = { version: 1, readAtMs, expiresAtMonoMs: Infinity, ownReadOf: null }
  const trust: Trust = {
    ...{ cacheTtlMs: 0, degradedCacheTtlMs: 0, invalidBeforeMs: 0, postgresDownUntilMs: 0 },
    ...{ outageTtlMs: 60_000, oldCopies: { fromMs: 0, untilMs: Infinity } },
  }
  const turn = { nowMs: 0, monoMs: readAtMs, shared: true }
  t.equal(decide(key, 0, turn, trust), 'read_or_go_on')
  t.equal(decide(key, 0, turn, { ...trust, postgresDownUntilMs: readAtMs + 1 }), 'refresh_ahead')
})

t.test('an old copy is used only as far as old-copies.ts allows', async (t) => {
  const key = { version: 1, readAtMs, expiresAtMonoMs: Infinity, ownReadOf: null }
  const turn = { nowMs: 0, monoMs: readAtMs + 6000, shared: true }
  const decision = (oldCopies: Trust['oldCopies'], outageTtlMs = 60_000) =>
    decide(key, 1, turn, {
      ...{ cacheTtlMs, degradedCacheTtlMs: 0, invalidBeforeMs: 0, postgresDownUntilMs: 0 },
      ...{ outageTtlMs, oldCopies },
    })
  t.equal(decision({ fromMs: readAtMs, untilMs: readAtMs + 6001 }), 'read_or_go_on')
  t.equal(decision({ fromMs: readAtMs + 1, untilMs: readAtMs + 6001 }), 'read_first')
  t.equal(decision({ fromMs: readAtMs, untilMs: readAtMs + 6000 }), 'read_first')
  t.equal(decision({ fromMs: readAtMs, untilMs: readAtMs + 6001 }, 6000), 'read_first')
})

t.test('a key read for this request is admitted unless it has expired or lacks a known change', async (t) => {
  const trust: Trust = {
    ...{ cacheTtlMs: 0, degradedCacheTtlMs: 0, invalidBeforeMs: Infinity, postgresDownUntilMs: 0 },
    ...{ outageTtlMs: 0, oldCopies: { fromMs: Infinity, untilMs: 0 } },
  }
  const key = { version: 4, readAtMs, expiresAtMonoMs: readAtMs + 600, ownReadOf: {} as CachedKey }
  const decision = (version: number | Lease, monoMs = readAtMs + 599) =>
    [true, false].map((shared) => decide(key, version, { nowMs: 0, monoMs, shared }, trust))
  for (const version of [0, 4]) t.strictSame(decision(version), ['admit', 'admit'], `${version}`)
  for (const version of ['0?1.2', '4?1.2'] as const)
    t.strictSame(decision(version), ['refresh_ahead', 'refresh_ahead'], `${version}`)
  for (const version of [5, '5?1.2'] as const)
    t.strictSame(decision(version), ['read_first', 'read_first'], `${version}`)
  t.strictSame(decision(4, readAtMs + 600), ['read_first', 'read_first'], 'expired')
})

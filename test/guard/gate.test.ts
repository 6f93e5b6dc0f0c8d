// The gate: whose token it is, whether the cached copy of its key may be used, and what happens if
// that cannot be known.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { type CachedKey, renew } from '../../src/guard/key-cache.ts'
import { createUnchanged } from '../../src/guard/unchanged.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { type KeyCredential, type ServerRole, Unavailable } from '../../src/stores.ts'
import { setClock } from '../clock.ts'
import { gated, hash, hashSecret, token, usableKey } from './gated.ts'

const unavailable = { message: 'Postgres is down' }
const down = async () => {
  throw new Unavailable('Postgres is down')
}
const never = () => new Promise<never>(() => {})
const revokedIn = (version: number) => usableKey({ version, revokedAt: 1 })

t.test('a cached key is admitted without a reading, with its number and the counting clock', async (t) => {
  const clock = setClock(t)
  const { gate, cached, hit, verify, counter, postgres, uses } = gated()
  const key = await cached()
  t.equal(await verify(), key)
  t.strictSame([gate.cacheHits, gate.cacheMisses], [1, 1])
  t.strictSame(await hit(key), {
    ok: true,
    caller: key,
    count: 2,
    nowMs: counter.nowMs,
    resetAtS: 1_767_225_660,
  })
  await hit(key)
  clock.advance(250)
  await nextTurn()
  t.strictSame(postgres.readings, [], 'also not in the background')
  t.strictSame(uses, [], 'its use was noted when it was read')
  counter.nowMs += 1000
  for (const _ of [1, 2]) await hit(key)
  t.strictSame(uses, [['apk_1', 1_767_225_613]], 'once a second')
})

t.test('what the counter says decides whether the copy is read again', async (t) => {
  const { gate, cached, hit, counter, postgres, confirmed } = gated()
  const key = await cached()
  counter.version = 5
  postgres.key = usableKey({ version: 5, rateLimitRpm: 7 })
  t.match(await hit(key), { ok: true, caller: { rateLimitRpm: 7, version: 5 } }, 'a newer version')
  t.strictSame(confirmed, [], 'only a lease is confirmed')
  counter.version = 6
  postgres.key = revokedIn(6)
  t.strictSame(await hit(key), { ok: false, reason: 'revoked', keyId: 'apk_1', userId: 'usr_1' })
  counter.version = '0?1.2'
  t.match(await hit(key), { ok: false, reason: 'revoked' }, 'a lease')
  counter.version = 0
  t.match(await hit(key), { ok: true, caller: key }, 'no version')
  gate.invalidateBefore()
  t.match(await hit(key), { ok: false, reason: 'revoked' }, 'a version that the counter may have lost')
})

t.test('a lease makes the gate read the key, and confirm what it has read', async (t) => {
  const { gate, cached, hit, counter, postgres, confirmed } = gated()
  const key = await cached()
  counter.version = '4?1.2'
  postgres.before = async () => {
    t.strictSame(confirmed, [], 'not before it is read')
  }
  t.match(await hit(key), { ok: true })
  t.strictSame(postgres.readings, [[hash]])
  t.strictSame(confirmed.splice(0), [[{ keyId: 'apk_1', version: 4 }, '4?1.2']])
  counter.version = '5?1.2'
  await t.rejects(hit(key), new Unavailable('Postgres is behind the counter'))
  postgres.key = usableKey({ version: 12 })
  counter.version = '12?1.2'
  t.match(await hit(key), { ok: true, caller: { version: 12 } })
  t.strictSame(confirmed.splice(0), [[{ keyId: 'apk_1', version: 12 }, '12?1.2']])
  postgres.before = down
  await t.rejects(hit(key), unavailable)
  t.strictSame(confirmed, [], 'never an older version, nor one from the cache')
  t.equal(gate.postgresDown, true)
})

t.test('the first request of a key does not wait for a second reading, but the next one does', async (t) => {
  for (const [version, shared] of [
    ['0?1.2', true],
    [0, false],
  ] as const) {
    const { verify, hit, counter, postgres } = gated()
    Object.assign(counter, { version, shared })
    const first = (await verify()) as CachedKey
    const second = (await verify()) as CachedKey
    t.match(await hit(first), { ok: true, caller: first })
    t.equal(postgres.readings.length, 1)
    postgres.key = revokedIn(5)
    t.match(await hit(second), { ok: false, reason: 'revoked' }, `${version}`)
  }
})

t.test('after the first request a reading in the background confirms the version', async (t) => {
  const clock = setClock(t)
  const first = async (read: Partial<{ role: ServerRole; key: KeyCredential }> = {}) => {
    const { verify, hit, counter, postgres, confirmed } = gated()
    counter.version = '4?1.2'
    await hit((await verify()) as CachedKey)
    t.strictSame(confirmed, [], 'not the first reading: it is older than the lease')
    Object.assign(postgres, read)
    clock.advance(250)
    for (let n = 0; n < 3; n++) await nextTurn()
    t.equal(postgres.readings.length, 2)
    return confirmed
  }
  t.strictSame(await first(), [[{ keyId: 'apk_1', version: 4 }, '4?1.2']])
  t.strictSame(await first({ key: usableKey({ version: 6 }) }), [[{ keyId: 'apk_1', version: 6 }, '4?1.2']])
  t.strictSame(await first({ key: usableKey({ version: 3 }) }), [], 'which lacks the change')
  t.strictSame(await first({ key: revokedIn(5) }), [])
  t.strictSame(await first({ role: 'standby' }), [], 'which may lack it')
})

t.test('the first use of a key is noted as one of a key to be read again', async (t) => {
  const used: CachedKey[] = []
  const { verify, hit, counter } = gated({ onUse: (key) => used.push(key) })
  counter.version = '4?1.2'
  await hit((await verify()) as CachedKey)
  t.strictSame(
    used.map(({ refreshing }) => refreshing),
    [true],
  )
})

t.test('a Postgres that lacks the change the counter knows of decides nothing', async (t) => {
  const { cached, hit, counter, postgres, raised } = gated()
  const key = await cached()
  const refused = async (state: Partial<typeof counter>, role: ServerRole = 'primary') => {
    Object.assign(counter, { shared: true, ...state })
    postgres.role = role
    await t.rejects(hit(key), new Unavailable('Postgres is behind the counter'))
  }
  await refused({ version: '5?1.2' })
  await refused({ version: 5 }, 'standby')
  await refused({ version: 5 }, 'read_only')
  await refused({ version: 5, shared: false })
  t.strictSame(raised, [], 'a version that will end, or that another server may have')
  await refused({ version: 5 })
  t.strictSame(raised, [{ keyId: 'apk_1', version: 5 }], 'one that a primary has lost becomes a lease')
})

t.test('a server that takes no writes refuses only what no other server could admit', async (t) => {
  const nowS = 1_767_225_612
  const noWrites = { message: /takes no writes/, statusCode: 503 }
  for (const role of ['read_only', 'standby'] as const) {
    const first = (given: Partial<KeyCredential>) => {
      const { verify, postgres } = gated()
      Object.assign(postgres, { role, key: usableKey(given) })
      return verify()
    }
    await t.rejects(first({ expiresAt: nowS - 1, nowS }), noWrites, 'the expiry may have moved')
    t.match(await first({ revokedAt: 1 }), { reason: 'revoked' })
    t.match(await first({ ownerDeleted: true }), { reason: 'owner_deleted' })

    const { gate, verify, postgres } = gated()
    postgres.role = role
    const [unknown, known] = await Promise.allSettled([verify(`${token}x`), verify()])
    t.match(unknown, { status: 'rejected', reason: noWrites }, 'it may lack a key')
    t.match(known, { status: 'fulfilled', value: { id: 'apk_1' } }, 'which says nothing of the others')
    t.equal(gate.postgresDown, false)
  }
})

t.test('a key read from a server without writes is used only if the counter has its version', async (t) => {
  const { gate, cached, hit, counter, postgres, confirmed } = gated()
  const key = await cached()
  const behind = { message: /takes no writes, and may lack changes/, statusCode: 503 }
  for (const role of ['read_only', 'standby'] as const) {
    postgres.role = role
    for (const [version, shared] of [
      ['0?1.2', true],
      [0, false],
    ] as const) {
      Object.assign(counter, { version, shared })
      await t.rejects(hit(key), behind, `${role}, ${version}`)
    }
    t.strictSame(confirmed, [], 'it may lack a change that Redis has lost')
    Object.assign(counter, { version: '4?1.2', shared: true })
    t.match(await hit(key), { ok: true }, 'it has the version that the lease demands')
    t.strictSame(confirmed.splice(0), [[{ keyId: 'apk_1', version: 4 }, '4?1.2']])
    counter.version = 4
    gate.invalidateBefore()
    t.match(await hit(key), { ok: true }, 'and the one that is confirmed')
  }
})

t.test('a first request may not use what a server without writes says by itself', async (t) => {
  for (const role of ['read_only', 'standby'] as const) {
    const { verify, hit, counter, postgres } = gated()
    postgres.role = role
    counter.version = '0?1.2'
    const key = (await verify()) as CachedKey
    await hit(key).catch(() => {})
    t.equal(postgres.readings.length, 2, role)
  }
})

t.test('without a shared counter each request waits for a reading', async (t) => {
  const { cached, hit, counter, postgres } = gated()
  const key = await cached()
  counter.shared = false
  for (let n = 1; n <= 3; n++) {
    await hit(key)
    t.equal(postgres.readings.length, n)
  }
  postgres.before = down
  await t.rejects(hit(key), unavailable)
})

t.test('an instance that is alone trusts a copy for a time of its own', async (t) => {
  const { cached, hit, counter, postgres } = gated({ degradedCacheTtlMs: 60_000 })
  counter.shared = false
  const key = await cached()
  await hit(key)
  t.equal(postgres.readings.length, 0)
  counter.aheadMs = 60_000
  await hit(key)
  t.equal(postgres.readings.length, 1)
})

t.test('a copy past half its time is admitted, and read again in the background, once', async (t) => {
  const clock = setClock(t)
  const { cached, hit, postgres } = gated()
  const key = await cached()
  clock.advance(4000)
  postgres.before = never
  for (let n = 0; n < 3; n++) {
    t.match(await hit(key), { ok: true, caller: key })
    clock.advance(100)
    await nextTurn()
  }
  t.equal(postgres.readings.length, 1)
})

t.test('keys that are read again in the background share a look-up', async (t) => {
  const clock = setClock(t)
  const { cached, hit, postgres } = gated()
  const key = await cached()
  const other = { ...key, id: 'apk_2', cacheName: 'other', hash: hash.replace(/^../, 'xx') }
  clock.advance(4000)
  await hit(key)
  clock.advance(249)
  await hit(other)
  await nextTurn()
  t.strictSame(postgres.readings, [], 'nobody waits for it')
  clock.advance(1)
  await nextTurn()
  t.strictSame(postgres.readings, [[key.hash, other.hash]])
  await hit({ ...other, refreshing: false })
  clock.advance(250)
  await nextTurn()
  t.equal(postgres.readings.length, 2, 'each key only once')
})

t.test('a key whose copy is renewed meanwhile is not read again', async (t) => {
  const clock = setClock(t)
  const { cached, hit, counter, postgres, confirmed } = gated()
  const key = await cached()
  counter.version = '4?1.2'
  const readings = async (afterMs: number) => {
    clock.advance(1000)
    await hit({ ...key, ownReadOf: key })
    renew(key, performance.now() + afterMs, { nowS: 0, server: '1' })
    clock.advance(250)
    await nextTurn()
    t.strictSame(confirmed.splice(0), [[{ keyId: 'apk_1', version: 4 }, '4?1.2']])
    return postgres.readings.length
  }
  t.equal(await readings(0.01), 0)
  t.equal(await readings(0.01), 0)
  t.equal(await readings(0), 1, 'that read may have begun before the lease')
})

t.test('a copy that is renewed while the key is read again can be read again later', async (t) => {
  const clock = setClock(t)
  const { cached, hit, postgres } = gated()
  const key = await cached()
  postgres.before = async () => {
    clock.advance(1)
    renew(key, performance.now(), { nowS: 0, server: '1' })
  }
  for (let n = 1; n <= 2; n++) {
    clock.advance(4000)
    await hit(key)
    clock.advance(250)
    await nextTurn()
    t.equal(postgres.readings.length, n)
  }
})

t.test('a key that has not changed, as the instance learns meanwhile, is not read again', async (t) => {
  const clock = setClock(t)
  const unchanged = createUnchanged()
  const learn = (changed: string[] | null) =>
    unchanged.learn({ server: '1', known: '', nowS: 0, changed }, performance.now())
  const { cached, hit, postgres } = gated({ unchanged })
  learn(null)
  clock.advance(1)
  const key = await cached()
  for (let n = 0; n < 3; n++) {
    clock.advance(6000)
    learn([])
    await hit(key)
    clock.advance(3000)
    await hit(key)
    clock.advance(1)
    learn([])
    clock.advance(250)
    await nextTurn()
  }
  t.strictSame(postgres.readings, [])
  clock.advance(6000)
  learn(['apk_1'])
  await hit(key)
  t.equal(postgres.readings.length, 1)
})

t.test('a reading in the background that failed is tried again', async (t) => {
  const clock = setClock(t)
  const { cached, hit, postgres } = gated()
  const key = await cached()
  clock.advance(4000)
  postgres.before = down
  for (const readings of [1, 2]) {
    await hit(key)
    clock.advance(250)
    await nextTurn()
    await nextTurn()
    t.equal(postgres.readings.length, readings)
  }
})

t.test('a key that turns out to be unusable leaves the cache', async (t) => {
  const { cached, hit, verify, cache, counter, postgres } = gated()
  const key = await cached()
  t.equal(cache.size(), 1)
  counter.version = 5
  for (const gone of [revokedIn(5), null]) {
    postgres.key = gone
    t.match(await hit(key), { ok: false })
    t.equal(cache.size(), 0)
    t.match(await verify(), { ok: false }, 'and the next request reads it')
    postgres.key = usableKey({ version: 5 })
    await verify()
    t.equal(cache.size(), 1)
  }
})

t.test('a key expires by the clock of the database, whatever the counter’s says', async (t) => {
  const nowS = 1_767_225_612.25
  for (const counterAheadS of [-30, 0, 30]) {
    const { cached, hit, counter, postgres } = gated()
    postgres.key = usableKey({ expiresAt: 1_767_225_614, nowS })
    counter.nowMs = (nowS + counterAheadS) * 1000
    const key = await cached()
    counter.aheadMs = 1000
    t.match(await hit(key), { ok: true }, `a second later: ${counterAheadS} s`)
    t.equal(postgres.readings.length, 0, 'from the cache')
    counter.aheadMs = 1750
    postgres.key = usableKey({ expiresAt: 1_767_225_614, nowS: nowS + 1.75 })
    const expired = { ok: false, reason: 'expired' }
    t.match(await hit(key), expired, `in the second of its expiry: ${counterAheadS} s`)
    postgres.before = down
    await t.rejects(hit(key), unavailable, 'without Postgres an expired copy is not used')
  }
})

t.test('however long a look-up takes, the key expires no later', async (t) => {
  const clock = setClock(t)
  const { verify, hit, postgres, counter } = gated()
  postgres.key = usableKey({ expiresAt: 1_767_225_614, nowS: 1_767_225_612 })
  postgres.before = async () => clock.advance(900)
  await hit((await verify()) as CachedKey)
  const cached = (await verify()) as CachedKey
  counter.aheadMs = 1099
  t.match(await hit(cached), { ok: true })
  postgres.before = down
  counter.aheadMs = 1100
  await t.rejects(hit(cached), unavailable)
})

t.test('a copy names the Postgres it was read from only if that is the primary', async (t) => {
  const { verify, postgres, cache } = gated()
  for (const [role, server] of [
    ['standby', ''],
    ['read_only', ''],
    ['primary', '1'],
  ] as const) {
    postgres.role = role
    t.match(await verify(), { server })
    cache.delete(cache.nameOf(token))
  }
})

t.test('a failed look-up is no verdict, neither for a new token nor for a cached key', async (t) => {
  const { gate, cached, hit, verify, counter, postgres } = gated()
  postgres.before = down
  await t.rejects(verify(), unavailable)
  t.equal(gate.postgresDown, true)
  postgres.before = async () => {}
  const key = await cached()
  t.equal(gate.postgresDown, false)
  postgres.before = async () => {
    throw new Error('a fault of ours')
  }
  counter.version = 5
  await t.rejects(hit(key), { message: 'a fault of ours' })
})

t.test('while Postgres is down a confirmed copy is used for 60 s after its reading, no longer', async (t) => {
  const { gate, cached, hit, verify, counter, postgres } = gated()
  const key = await cached()
  postgres.before = down
  await t.rejects(verify(`${token}x`), unavailable)
  t.ok(gate.postgresDown)
  for (const aheadMs of [5000, 59_000]) {
    counter.aheadMs = aheadMs
    t.match(await hit(key), { ok: true, caller: key })
  }
  counter.aheadMs = 60_000
  await t.rejects(hit(key), unavailable)
})

t.test('while Postgres is down, no request is counted whose copy is too old to go on with', async (t) => {
  const clock = setClock(t)
  const { cached, hit, verify, counter, postgres } = gated({ outageTtlMs: 10_000 })
  const key = await cached()
  clock.advance(4999)
  postgres.before = down
  await t.rejects(verify('lk_unknown'), unavailable)
  t.equal(await verify(), key, 'this copy is not old')
  clock.advance(1)
  t.equal(await verify(), key, 'and this one may be used')
  clock.advance(5000)
  t.equal(await verify(), key, 'whether Postgres is down is not known')
  const { count } = counter
  await t.rejects(hit(key), unavailable)
  t.equal(counter.count, count + 1)
  await t.rejects(verify(), unavailable)
  clock.advance(2000)
  t.equal(await verify(), key, 'nor is it 2 s after the last look-up')
  await t.rejects(hit(key), unavailable)
  clock.advance(1999)
  await t.rejects(verify(), unavailable)
  postgres.before = async () => {}
  const readAtMs = performance.now()
  t.match(await verify(), { ownReadOf: { readAtMs } }, 'it has been read for this request')
  t.match(await verify(), { ownReadOf: null, readAtMs }, 'and for the next ones')
})

t.test('without OUTAGE_CACHE_SECONDS, a copy is of use while the counter confirms it', async (t) => {
  const clock = setClock(t)
  const { cached, verify, postgres } = gated({ outageTtlMs: 0 })
  const key = await cached()
  clock.advance(4999)
  postgres.before = down
  await t.rejects(verify('lk_unknown'), unavailable)
  t.equal(await verify(), key)
  clock.advance(1)
  await t.rejects(verify(), unavailable)
})

t.test('a copy that has not changed, as the instance knows, is not too old', async (t) => {
  const clock = setClock(t)
  const renew = (key: CachedKey) => {
    key.readAtMs = performance.now()
  }
  const { cached, verify, postgres } = gated({ outageTtlMs: 0, unchanged: { latest: { asOfMs: 0 }, renew } })
  const key = await cached()
  clock.advance(5000)
  postgres.before = down
  await t.rejects(verify('lk_unknown'), unavailable)
  t.equal(await verify(), key)
})

t.test('for 2 s after a failed look-up, requests with an old copy do not wait for another', async (t) => {
  const clock = setClock(t)
  const { cached, hit, postgres } = gated()
  const key = await cached()
  clock.advance(6000)
  postgres.before = down
  await hit(key)
  /** Whether a request is admitted while Postgres does not answer. */
  const goesOn = async () => {
    postgres.before = never
    const admitted = hit(key).then(() => true)
    await nextTurn()
    return Promise.race([admitted, nextTurn().then(() => false)])
  }
  clock.advance(1749)
  t.equal(await goesOn(), true)
  clock.advance(250)
  t.equal(await goesOn(), true)
  t.equal(postgres.readings.length, 2, 'it is read in the background')
  clock.advance(1)
  t.equal(await goesOn(), false)
})

t.test('once a look-up has succeeded, a request with an old copy waits for its own again', async (t) => {
  const clock = setClock(t)
  const { cached, hit, verify, postgres } = gated()
  const key = await cached()
  clock.advance(6000)
  postgres.before = down
  await hit(key)
  postgres.before = async () => {}
  await verify('lk_unknown')
  postgres.before = down
  postgres.readings.length = 0
  await hit(key)
  t.equal(postgres.readings.length, 1, 'the request waited for its own')
})

t.test('an outage that is over is noticed without a request', async (t) => {
  const clock = setClock(t)
  const { gate, verify, postgres } = gated()
  postgres.before = down
  await t.rejects(verify(), unavailable)
  const after = async (ms: number) => {
    clock.advance(ms)
    for (let n = 0; n < 3; n++) await nextTurn()
    return [postgres.readings.length, gate.postgresDown]
  }
  t.strictSame(await after(1999), [1, true])
  t.strictSame(await after(1), [2, true])
  postgres.before = async () => {}
  t.strictSame(await after(2000), [3, false])
  t.strictSame(await after(2000), [3, false], 'and that is all')
})

t.test('once closed it makes no look-up of its own', async (t) => {
  const clock = setClock(t)
  const whenClosed = async (leave: (gate: ReturnType<typeof gated>, key: CachedKey) => unknown) => {
    const opened = gated()
    const key = await opened.cached()
    clock.advance(4000)
    await leave(opened, key)
    await opened.gate.close()
    const made = opened.postgres.readings.length
    await opened.hit({ ...key, refreshing: false })
    for (let n = 0; n < 10; n++) {
      clock.advance(500)
      await nextTurn()
    }
    t.equal(opened.postgres.readings.length, made)
  }
  const failing = ({ verify, postgres }: ReturnType<typeof gated>) => {
    postgres.before = down
    return t.rejects(verify('lk_unknown'), unavailable)
  }
  await whenClosed(failing)
  await whenClosed((opened) => void failing(opened))
  await whenClosed(({ hit }, key) => hit(key))
})

t.test('past its time a confirmed copy is used only if a reading fails', async (t) => {
  const { cached, hit, counter, postgres } = gated()
  const key = await cached()
  counter.aheadMs = 5000
  postgres.before = down
  t.match(await hit(key), { ok: true, caller: key })
  t.equal(postgres.readings.length, 1)
  counter.aheadMs = 8000
  let answer = () => {}
  postgres.before = () => new Promise((resolve) => (answer = resolve))
  const waiting = hit(key)
  while (postgres.readings.length < 2) await nextTurn()
  postgres.key = revokedIn(5)
  answer()
  t.match(await waiting, { ok: false, reason: 'revoked' }, 'however late it comes')
})

t.test('a token of any form is looked up: without, its answer would come sooner', async (t) => {
  const { verify, postgres } = gated()
  const tokens = ['lk_', 'lk_short', `${token.slice(0, -1)}~`, `lk_${'0'.repeat(32)}000000`, 'a'.repeat(9000)]
  for (const asked of tokens) {
    t.strictSame(await verify(asked), { ok: false, reason: 'unknown_key' })
    t.strictSame(postgres.readings.pop(), [keyHasher(hashSecret).hashesOf(asked).hash])
  }
})

t.test(
  'with a previous secret both hashes are looked up, and a key under the old one is reported',
  async (t) => {
    const previous = 'the previous secret of the tests, of thirty-two characters'
    const from = keyHasher(previous).hashesOf(token).hash
    const stale: unknown[] = []
    const { verify, postgres } = gated({
      hasher: keyHasher(hashSecret, previous),
      onStaleHash: (one) => stale.push(one),
    })
    postgres.key = usableKey({ hash: from })
    t.match(await verify(), { id: 'apk_1' })
    t.strictSame(postgres.readings, [[hash, from]])
    t.strictSame(stale, [{ id: 'apk_1', from, to: hash }])
    t.match(await gated({ onStaleHash: (one) => stale.push(one) }).verify(), { id: 'apk_1' })
    t.equal(stale.length, 1, 'and one under the current secret is not')
  },
)

t.test('more look-ups than fit are shed, which does not say that Postgres is down', async (t) => {
  const { gate, verify, shed, postgres } = gated()
  postgres.before = never
  for (let n = 0; n < 10_000; n++) verify(`lk_${n}`).catch(() => {})
  t.strictSame(shed, [])
  // No timer can run in between, however slow the machine.
  const error = await verify('lk_one_more').catch((error) => error)
  t.equal(gate.postgresDown, false)
  t.match(error, { message: /too many/, statusCode: 503 })
  t.strictSame(shed, ['lookups'])
  await nextTurn()
  t.strictSame(
    postgres.readings.map(({ length }) => length),
    [500, 500],
    'two statements at once, for 500 keys each',
  )
})

t.test('a hit that finds no room, at once or after it waited, is a 503', async (t) => {
  const { cached, hit, counter, shed } = gated()
  const key = await cached()
  const refused = { message: /too many/, statusCode: 503 }
  counter.full = true
  await t.rejects(hit(key), refused)
  counter.full = false
  counter.count = -1
  await t.rejects(hit(key), refused)
  t.strictSame(shed, ['counter', 'counter'])
})

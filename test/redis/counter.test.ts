// The counter in Redis: the conformance suite, what it writes there, and what others may have
// written into its keys.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { RedisCounterOptions } from '../../src/redis/counter.ts'
import { loadScripts, sources } from '../../src/redis/scripts.ts'
import { newId } from '../../src/rules/id.ts'
import type { Lease } from '../../src/stores.ts'
import * as suite from '../memory/counter-suite.ts'
import { startPrivateRedis, useServices } from '../services/index.ts'
import { countAt, countWith, observe } from './counters.ts'

const { ascending, hit, hitAll, hits, newKeyIds, numbersOf, upTo } = suite

const services = await useServices(t)
const redis = services.connectRedis()

async function open(t: Test, options: Partial<RedisCounterOptions> = {}) {
  const counting = countWith(t, services.connectRedis(), options)
  await counting.untilShared()
  return counting
}

const { counter, outages } = await open(t)

const timeS = async () => Number((await redis.time())[0])
/** Redis's own: what its counters are named by. */
const minuteNow = async () => Math.floor((await timeS()) / 60)
const inOneMinute = (work: () => Promise<suite.Counted[]>) => suite.inOneMinute(work, minuteNow)
const counterName = (keyId: string, minute: number) => `rl:{${keyId}}:${minute}`
const versionName = (keyId: string) => `rl:{${keyId}}:v`

t.test('what every counter promises', async (t) => suite.counterSuite(t, (await open(t)).counter))

t.test('instances share one count', async (t) => {
  const counters = [counter, (await open(t)).counter, (await open(t)).counter]
  const counted = await inOneMinute(async () => {
    const keyId = newId('apk_')
    const waiting = []
    for (let turn = 0; turn < 20; turn++) {
      for (const counter of counters) waiting.push(...upTo(5).map(() => hit(counter, keyId)))
      await nextTurn()
    }
    return Promise.all(waiting)
  })
  t.strictSame(numbersOf(counted).sort(ascending), upTo(300))
})

t.test('the next hit on another instance sees a version that was raised', async (t) => {
  const { counter: changing } = await open(t)
  const keyId = newId('apk_')
  for (const version of [2, 3, 4]) {
    t.equal(await changing.raise([{ keyId, version }]), true)
    const counted = await hit(counter, keyId)
    t.match([suite.minVersionOf(counted), counted.turn], [version, { shared: true }])
  }
})

t.test("the window is that of Redis's clock, whatever the instance's own says", async (t) => {
  const { counter } = await open(t, { now: () => 0 })
  const counted = await inOneMinute(async () => {
    const keyId = newId('apk_')
    const minute = await minuteNow()
    for (const [ahead, count] of [50, 7, 90].entries())
      await redis.set(counterName(keyId, minute + ahead - 1), count, 'EX', 120)
    const beforeS = await timeS()
    const answer = await hit(counter, keyId)
    const s = answer.turn.nowMs / 1000
    t.ok(s >= beforeS && s < (await timeS()) + 1, `${s}`)
    return [answer]
  })
  t.strictSame(numbersOf(counted), [8])
})

t.test('the hits of a turn go as one call, and those of one key as one increment', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const batches: string[] = []
  const { counter, untilShared } = countAt(t, server.url, {
    onBatch: (hits, keys) => batches.push(`${hits}/${keys}`),
  })
  const observer = observe(t, server.url)
  await untilShared()
  await hit(counter, newId('apk_'))
  await observer.config('RESETSTAT')
  const keyIds = newKeyIds(20)
  await Promise.all(upTo(500).map((i) => hit(counter, keyIds[i % 20]!)))
  t.strictSame(batches, ['1/1', '500/20'])
  const stats = await observer.info('commandstats')
  t.match(stats, /cmdstat_evalsha:calls=1,/, 'one call')
  t.match(stats, /cmdstat_incrby:calls=20,/, 'one increment for each key')
  t.match(stats, /cmdstat_mget:calls=1,/, 'the same call reads the versions')
})

t.test(
  'a key in use costs one command in the script, and its version and the clock one a call',
  async (t) => {
    const server = await startPrivateRedis(t)
    if (!server) return
    const { counter, untilShared } = countAt(t, server.url)
    const observer = observe(t, server.url)
    await untilShared()
    let stats = ''
    await inOneMinute(async () => {
      const keyIds = newKeyIds(20)
      const counted = await hitAll(counter, keyIds)
      await observer.config('RESETSTAT')
      for (let round = 0; round < 6; round++) counted.push(...(await hitAll(counter, keyIds)))
      stats = await observer.info('commandstats')
      return counted
    })
    const calls = [...stats.matchAll(/cmdstat_(\w+):calls=(\d+)/g)].map(([, name, count]) => [
      name,
      Number(count),
    ])
    t.match(Object.fromEntries(calls), { evalsha: 6, time: 6, mget: 6, incrby: 120 })
    t.notMatch(stats, /cmdstat_(expire|set|get|ttl|exists)\b/)
  },
)

t.test('nothing is stored of a key but a count for two minutes and a version for ten', async (t) => {
  let seen: [name: string, value: string | null, ttlS: number][] = []
  const look = async (name: string) => {
    seen.push([name, await redis.get(name), await redis.ttl(name)])
  }
  let [countName, versionsName] = ['', '']
  const counted = await inOneMinute(async () => {
    seen = []
    const keyId = newId('apk_')
    countName = counterName(keyId, await minuteNow())
    versionsName = versionName(keyId)
    const answers = await hits(counter, keyId, 3)
    for (const name of [countName, versionsName]) await look(name)
    // As somebody else may have left them.
    await redis.persist(countName)
    await redis.persist(versionsName)
    await counter.raise([{ keyId, version: 2 }])
    answers.push(...(await hits(counter, keyId, 5)))
    for (const name of (await redis.keys(`*${keyId}*`)).sort()) await look(name)
    return answers
  })
  t.strictSame(numbersOf(counted), upTo(8))
  t.strictSame(
    seen.map(([name, value]) => [name, value]),
    [
      [countName, '3'],
      [versionsName, String(counted[0]!.version)],
      [countName, '8'],
      [versionsName, String(counted[7]!.version)],
    ],
  )
  for (const [name, , ttlS] of seen) {
    if (name === countName) t.ok(ttlS > 100 && ttlS <= 120, `${ttlS} s`)
    else t.ok(ttlS > 540 && ttlS <= 600, `${ttlS} s: longer than any instance trusts a copy`)
  }
})

t.test('a probe leaves nothing behind', async (t) => {
  const id = newId('apk_')
  await loadScripts(services.connectRedis()).probe(id)
  t.strictSame(await redis.keys(`*${id}*`), [])
})

t.test('a counter of a slot that moves has an expiry too, and starts over below zero', async (t) => {
  for (const before of [null, '-100']) {
    const [keyId] = newKeyIds(1)
    const count = async (again = true): Promise<string> => {
      const minute = await minuteNow()
      const name = counterName(keyId!, minute)
      if (before !== null) await redis.set(name, before)
      const reply = (await redis.eval(sources.count, 1, name, minute, 3)) as number[]
      // A new minute may have begun in between.
      if (reply.length < 3 && again) return count(false)
      t.equal(reply[2], 3)
      t.equal(await redis.get(name), '3')
      return name
    }
    const ttlS = await redis.ttl(await count())
    t.ok(ttlS > 100 && ttlS <= 120, `${ttlS} s`)
  }
})

/** How many hits each call has. */
const patterns = [upTo(20).map(() => 1), [3, 3, 3, 3], [7, 1, 7, 1, 1], [8, 8], [5, 4, 20]]

t.test('each counter has an expiry, and one that has lost it gets it back within eight hits', async (t) => {
  let without: string[] = []
  await inOneMinute(async () => {
    without = []
    const minute = await minuteNow()
    const counted: suite.Counted[] = []
    for (const pattern of patterns) {
      const keyId = newId('apk_')
      const name = counterName(keyId, minute)
      let sincePersist = Number.POSITIVE_INFINITY
      for (const size of pattern) {
        counted.push(...(await hits(counter, keyId, size)))
        sincePersist += size
        const ttlS = await redis.ttl(name)
        if (ttlS < 0 && sincePersist >= 8) without.push(`${pattern}: ${sincePersist} hits later`)
        if (ttlS >= 0) {
          await redis.persist(name)
          sincePersist = 0
        }
      }
      // A scan of the next run in this Redis would find it.
      await redis.expire(name, 120)
    }
    return counted
  })
  t.strictSame(without, [])
})

t.test('counting goes on when Redis has forgotten its scripts', async (t) => {
  const counted = await inOneMinute(async () => {
    const keyId = newId('apk_')
    const first = await hit(counter, keyId)
    await redis.script('FLUSH')
    const more = await hits(counter, keyId, 2)
    await redis.script('FLUSH')
    t.equal(await counter.raise([{ keyId, version: 5 }]), true)
    return [first, ...more, await hit(counter, keyId)]
  })
  t.strictSame(numbersOf(counted), [1, 2, 3, 4])
  t.equal(suite.minVersionOf(counted[3]!), 5)
})

type Spoil = (name: string) => Promise<unknown>
const write =
  (text: string): Spoil =>
  (name) =>
    redis.set(name, text)
const collections: Record<string, Spoil> = {
  'a list': (name) => redis.rpush(name, '7'),
  'a set': (name) => redis.sadd(name, '7'),
  'a hash': (name) => redis.hset(name, 'count', '7'),
}
const texts = (...all: string[]) => Object.fromEntries(all.map((text) => [`"${text}"`, write(text)]))

const spoilt: Record<string, Spoil> = {
  ...collections,
  ...texts('seven', '', '1.5', ' 7', '9223372036854775807', '99999999999999999999', '-100', '-1'),
}

t.test('a counter that holds no count restarts, and the others of its turn go on', async (t) => {
  let after: (string | null)[] = []
  const whats = Object.keys(spoilt)
  const counted = await inOneMinute(async () => {
    const [sound, ...keyIds] = newKeyIds(1 + whats.length)
    const minute = await minuteNow()
    await redis.set(counterName(sound!, minute), 41)
    for (const [i, what] of whats.entries()) await spoilt[what]!(counterName(keyIds[i]!, minute))
    const all = [sound!, ...keyIds]
    const answers = [...(await hitAll(counter, [...all, ...all])), ...(await hitAll(counter, all))]
    after = await redis.mget(all.map((keyId) => counterName(keyId, minute)))
    return answers
  })
  const size = 1 + whats.length
  for (const [i, what] of ['the sound one', ...whats].entries()) {
    const numbers = [0, 1, 2].map((round) => counted[round * size + i]!.number)
    t.strictSame(numbers, i === 0 ? [42, 43, 44] : [1, 2, 3], what)
    t.equal(after[i], String(numbers[2]), `Redis holds the count again: ${what}`)
  }
})

const unreadable: Record<string, Spoil> = {
  ...collections,
  ...texts(
    'seven',
    '',
    'nan',
    'inf',
    '-inf',
    '-1',
    '0',
    '1e5',
    '1?',
    '?1.2',
    '1e30',
    '99999999999',
    '99999999999999999999',
  ),
}

for (const [what, spoil] of Object.entries(unreadable)) {
  t.test(`a version that is ${what} confirms nothing, and makes room for one that does`, async (t) => {
    const [changed, read] = newKeyIds(2) as [string, string]
    await spoil(versionName(changed))
    t.equal(await counter.raise([{ keyId: changed, version: 9 }]), true)
    t.equal(suite.minVersionOf(await hit(counter, changed)), 9)
    await spoil(versionName(read))
    t.equal(await confirm(read, 3, await leaseOf(read)), 3)
  })
}

/** What a hit returns for a key whose version nothing confirms. */
async function leaseOf(keyId: string): Promise<Lease> {
  const { version } = await hit(counter, keyId)
  if (typeof version === 'number') throw new Error(`version ${version} is confirmed`)
  return version
}

/** What the next hit returns after a confirmation. */
async function confirm(keyId: string, version: number, lease: Lease) {
  counter.confirm({ keyId, version }, lease)
  return (await hit(counter, keyId)).version
}

t.test('use renews a version that is confirmed, and not a lease', async (t) => {
  const keyId = newId('apk_')
  const ttlAfterUse = async () => {
    await redis.expire(versionName(keyId), 100)
    const [counted] = await inOneMinute(async () => {
      await redis.unlink(counterName(keyId, await minuteNow()))
      return [await hit(counter, keyId)]
    })
    return { version: counted!.version, ttlS: await redis.ttl(versionName(keyId)) }
  }
  await counter.raise([{ keyId, version: 3 }])
  const { version: lease, ttlS } = await ttlAfterUse()
  t.ok(ttlS <= 100, `lease: ${ttlS} s`)
  t.equal(await confirm(keyId, 3, lease as Lease), 3)
  const confirmed = await ttlAfterUse()
  t.ok(confirmed.ttlS > 540, `confirmed: ${confirmed.ttlS} s`)
})

t.test('a version is confirmed under the lease of a hit, until the key changes', async (t) => {
  const keyId = newId('apk_')
  const lease = await leaseOf(keyId)
  t.equal(await leaseOf(keyId), lease, 'another reader may confirm it meanwhile')
  t.equal(await confirm(keyId, 4, lease), 4)
  t.ok((await redis.ttl(versionName(keyId))) > 540, 'for ten minutes')
  t.equal(await confirm(keyId, 5, lease), 4, 'a lease is used once')
  await counter.raise([{ keyId, version: 5 }])
  t.match(await confirm(keyId, 4, lease), /^5[?]/)
  await counter.raise([{ keyId, version: 3 }])
  t.equal(await confirm(keyId, 5, await leaseOf(keyId)), 5, 'a late publication lowers nothing')
})

t.test('the highest version that Postgres can store is confirmed too', async (t) => {
  const keyId = newId('apk_')
  const highest = 2_147_483_647
  await counter.raise([{ keyId, version: highest }])
  await counter.raise([{ keyId, version: 2 }])
  t.equal(suite.minVersionOf(await hit(counter, keyId)), highest)
  t.equal(await confirm(keyId, highest, await leaseOf(keyId)), highest)
})

t.test('the keys that were read together are confirmed by one call, each under its own lease', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter, untilShared } = countAt(t, server.url)
  const observer = observe(t, server.url)
  await untilShared()
  const keyIds = newKeyIds(20)
  const leases = (await hitAll(counter, keyIds)).map(({ version }) => version as Lease)
  // The script is not in Redis before its first call.
  counter.confirm({ keyId: newId('apk_'), version: 1 }, leases[0]!)
  await hitAll(counter, keyIds)
  await counter.raise([{ keyId: keyIds[0]!, version: 1 }])
  await observer.config('RESETSTAT')
  for (const [i, keyId] of keyIds.entries()) counter.confirm({ keyId, version: 1 + i }, leases[i]!)
  const versions = (await hitAll(counter, keyIds)).map(({ version }) => version)
  t.match(versions[0], /^1[?]/, 'not the one that has changed')
  t.strictSame(
    versions.slice(1),
    upTo(19).map((i) => 1 + i),
  )
  t.match(await observer.info('commandstats'), /cmdstat_evalsha:calls=2,/, 'the confirmation and the hits')
})

t.test('any number of keys can be confirmed in one turn', async (t) => {
  const keyIds = newKeyIds(9000)
  const leases = (await hitAll(counter, keyIds)).map(({ version }) => version as Lease)
  for (const [i, keyId] of keyIds.entries()) counter.confirm({ keyId, version: 7 }, leases[i]!)
  const versions = (await hitAll(counter, keyIds)).map(({ version }) => version)
  t.ok(versions.every((version) => version === 7))
})

t.test('after a confirmation that failed, the next one is sent', async (t) => {
  const client = services.connectRedis()
  const { counter: own, untilShared } = countWith(t, client)
  await untilShared()
  const keyId = newId('apk_')
  const lease = await leaseOf(keyId)
  const commands = client as unknown as Record<'latchkeyConfirm', (keys: number) => Promise<unknown>>
  let sent = 0
  const fail = async (keys: number) => {
    sent += keys
    throw new Error('failed')
  }
  const failing = t.intercept(commands, 'latchkeyConfirm', { value: fail, configurable: true })
  for (let reader = 0; reader < 2; reader++) own.confirm({ keyId, version: 4 }, lease)
  await nextTurn()
  t.equal(sent, 1, 'one for both readers of the key')
  failing.restore()
  own.confirm({ keyId, version: 4 }, lease)
  t.equal((await hit(own, keyId)).version, 4)
})

for (const [what, lose] of [
  ['lost', (keyId: string) => redis.del(versionName(keyId))],
  ['changed', (keyId: string) => counter.raise([{ keyId, version: 2 }])],
  [
    'changed and lost',
    (keyId: string) => counter.raise([{ keyId, version: 2 }]).then(() => redis.del(versionName(keyId))),
  ],
] as const)
  t.test(`what was read before the version was ${what} is not confirmed`, async (t) => {
    const keyId = newId('apk_')
    const lease = await leaseOf(keyId)
    await lose(keyId)
    t.type(await confirm(keyId, 1, lease), 'string')
    await leaseOf(keyId)
    t.type(await confirm(keyId, 1, lease), 'string')
  })

t.test('a version in use never expires, and gets an expiry if it has lost it', async (t) => {
  const ttlsS: number[] = []
  await inOneMinute(async () => {
    ttlsS.length = 0
    const [endless, ending] = newKeyIds(2) as [string, string]
    await redis.set(versionName(endless), 7)
    await redis.set(versionName(ending), 7, 'EX', 50)
    const counted = await hitAll(counter, [endless, ending])
    for (const keyId of [endless, ending]) ttlsS.push(await redis.ttl(versionName(keyId)))
    return counted
  })
  for (const ttlS of ttlsS) t.ok(ttlS > 540 && ttlS <= 600, `${ttlS} s`)
})

t.test('Redis never counted as down in the tests above', async (t) => {
  t.strictSame(outages, [])
})

// What others may have written into the counter's keys: it heals, and never makes a changed key look unchanged.
import t, { type Test } from 'tap'
import { connectRedis, requireDatabase } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { type Counted, hit, hits, inOneMinute, numbersOf } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { impatient, patient } from './counters.ts'

const services = await useServices(t)
const redis = services.connectRedis()

async function open(t: Test) {
  const client = services.connectRedis(impatient)
  await until('Redis is connected', () => client.status === 'ready')
  const modes: string[] = []
  const counter = createRedisCounter({
    client,
    patience: patient,
    onOutage: (outage) => modes.push(outage === null ? 'shared' : 'local'),
  })
  t.teardown(() => counter.close())
  return { counter, modes }
}

const minuteNow = async () => Math.floor(Number((await redis.time())[0]) / 60)

const spoilt: Record<string, (name: string) => Promise<unknown>> = {
  'a word': (name) => redis.set(name, 'seven'),
  'an empty string': (name) => redis.set(name, ''),
  'a fraction': (name) => redis.set(name, '1.5'),
  'a number with a blank': (name) => redis.set(name, ' 7'),
  'the largest integer': (name) => redis.set(name, '9223372036854775807'),
  'more than any integer': (name) => redis.set(name, '99999999999999999999'),
  'a list': (name) => redis.rpush(name, '7'),
  'a set': (name) => redis.sadd(name, '7'),
  'a hash': (name) => redis.hset(name, 'count', '7'),
  'a number below zero': (name) => redis.set(name, '-100'),
}

for (const [what, spoil] of Object.entries(spoilt)) {
  t.test(`a counter that holds ${what} is begun anew`, async (t) => {
    const { counter, modes } = await open(t)
    let after: string | null = null
    const counted = await inOneMinute(async () => {
      const keyId = newId('apk_')
      const name = `rl:{${keyId}}:${await minuteNow()}`
      await spoil(name)
      const answers = [...(await hits(counter, keyId, 2)), await hit(counter, keyId)]
      after = await redis.get(name)
      return answers
    }, minuteNow)
    t.strictSame(numbersOf(counted), [1, 2, 3])
    t.equal(after, '3', 'Redis holds the count again')
    t.strictSame(modes, [], 'no reason to take Redis for away')
  })
}

t.test('one spoilt counter leaves the others of its turn as they are', async (t) => {
  const { counter } = await open(t)
  const counted = await inOneMinute(async () => {
    const [spoiltKey, sound] = [newId('apk_'), newId('apk_')]
    const minute = await minuteNow()
    await redis.rpush(`rl:{${spoiltKey}}:${minute}`, 'x')
    await redis.set(`rl:{${sound}}:${minute}`, 41)
    return Promise.all([sound, spoiltKey, sound].map((keyId) => hit(counter, keyId)))
  }, minuteNow)
  t.strictSame(numbersOf(counted), [42, 1, 43])
})

const unreadable: Record<string, (name: string) => Promise<unknown>> = {
  'a word': (name) => redis.set(name, 'seven'),
  'an empty string': (name) => redis.set(name, ''),
  'not a number': (name) => redis.set(name, 'nan'),
  'a list': (name) => redis.rpush(name, '7'),
  'a hash': (name) => redis.hset(name, 'version', '7'),
  'a power of ten': (name) => redis.set(name, '1e5'),
  'a number of too many digits': (name) => redis.set(name, '99999999999'),
}

for (const [what, spoil] of Object.entries(unreadable)) {
  t.test(`a version that is ${what} is told as unreadable, and healed by the next change`, async (t) => {
    const { counter } = await open(t)
    const keyId = newId('apk_')
    await spoil(`rl:{${keyId}}:v`)
    const before: Counted = await hit(counter, keyId)
    t.ok(before.version < 0, `below zero, and not ${before.version}: a copy must not be believed`)
    t.equal(await counter.raise([{ keyId, version: 9 }]), true)
    t.equal((await hit(counter, keyId)).version, 9)
  })
}

for (const text of ['99999999999999999999', 'inf', '-inf', '-1', '1e30']) {
  t.test(`a version of ${text} vouches for no copy`, async (t) => {
    const { counter } = await open(t)
    const keyId = newId('apk_')
    await redis.set(`rl:{${keyId}}:v`, text)
    const { version } = await hit(counter, keyId)
    t.ok(version < 0 || version > 2 ** 31 - 1, `${version} is no version that a row can have`)
  })
}

t.test('a version that somebody has written without an expiry gets one at the next count', async (t) => {
  const { counter } = await open(t)
  const [spoilt, raised] = [newId('apk_'), newId('apk_')]
  await redis.set(`rl:{${spoilt}}:v`, 7)
  await redis.set(`rl:{${raised}}:v`, 7, 'EX', 50)
  await Promise.all([hit(counter, spoilt), hit(counter, raised)])
  const ttlS = await redis.ttl(`rl:{${spoilt}}:v`)
  t.ok(ttlS > 540 && ttlS <= 600, `${ttlS} s`)
  t.ok((await redis.ttl(`rl:{${raised}}:v`)) <= 50, 'one that has an expiry keeps it')
})

t.test('a database number that Redis does not have is refused, and not counted for in another', async (t) => {
  const { host, port } = redis.options
  const clientOf = (db: number) => {
    const client = connectRedis(parseRedisUrl(`redis://${host}:${port}/${db}`)!)
    client.on('error', () => {})
    t.teardown(() => client.disconnect())
    return client
  }
  await requireDatabase(clientOf(1))
  await t.rejects(requireDatabase(clientOf(99999999)), { message: /REDIS_URL.*\b99999999\b/ })
})

// What one Redis may refuse: a password, a command, a database, a write. And that the documented
// permissions are enough.
import type { Redis } from 'ioredis'
import t from 'tap'
import { connectRedis, requireRedisDatabase } from '../../src/redis/connect.ts'
import { type Commands, sources } from '../../src/redis/scripts.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { minuteOf } from '../../src/rules/window.ts'
import type { Lease, Outage } from '../../src/stores.ts'
import { hit } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis } from '../services/index.ts'
import { commands, databaseCommands, harmless, refusedCommands } from './acl.ts'
import { type Counting, countAt, observe } from './counters.ts'

const redis = await startPrivateRedis(t)

/** ioredis says so unless it was about to connect again. */
const hasEnded = (client: Redis) =>
  client.status === 'end' ||
  (client.status === 'reconnecting' && Reflect.get(client, 'reconnectTimeout') === null)

if (redis) {
  const admin = observe(t, redis.url)
  const allow = (user: string, ...rules: string[]) =>
    admin.call('ACL', 'SETUSER', user, 'reset', 'on', '>secret', '~rl:*', ...rules)
  const urlOf = (user: string, db = '') => redis.url.replace('//', `//${user}:secret@`) + db

  for (const db of ['', '/3']) {
    t.test(`the documented permissions are enough${db && ' in another database'}`, async (t) => {
      await allow('counting', ...(db ? databaseCommands : commands))
      const { client, counter, outages, untilShared } = countAt(t, urlOf('counting', db))
      await requireRedisDatabase(client)
      await untilShared()
      const keyId = newId('apk_')
      t.match(await hit(counter, keyId), { number: 1, turn: { shared: true } })
      t.equal(await counter.raise([{ keyId, version: 2 }]), true)
      // Without its scripts too.
      await admin.script('FLUSH')
      const { number, version } = await hit(counter, keyId)
      t.equal(number, 2)
      counter.confirm({ keyId, version: 2 }, String(version))
      t.match(await hit(counter, keyId), { number: 3, version: 2 })
      t.match(await counter.scan(minuteOf(await counter.now()), () => {}), { complete: true })
      t.strictSame(outages, [])
      const refused = await refusedCommands(admin)
      t.strictSame(
        refused.filter((command) => !harmless.includes(command)),
        [],
      )
    })
  }

  const needless = [...harmless, 'scan']
  for (const missing of commands.filter((command) => !needless.includes(command.slice(1)))) {
    t.test(`without ${missing} it does not count in Redis, and says why`, async (t) => {
      await allow('lacking', ...commands.filter((command) => command !== missing))
      const { counter } = countAt(t, urlOf('lacking'))
      // ioredis sends a script's text first, then its hash, and the text again when Redis has
      // forgotten it.
      await until(
        'it counts, or says why not',
        () => counter.mode() === 'shared' || counter.outages().length > 0,
      )
      if (!/eval/.test(missing)) t.equal(counter.mode(), 'local', 'the probe says so, before any hit')
      await hit(counter, newId('apk_'))
      await admin.script('FLUSH')
      await hit(counter, newId('apk_'))
      t.equal(counter.mode(), 'local')
      t.match(counter.outages(), [{ cause: 'no_permission' }])
    })
  }

  t.test('a permission that hits can do without is missed at the next change', async (t) => {
    await allow('losing', ...commands)
    const { counter, causes, untilDown, untilShared } = countAt(t, urlOf('losing'))
    await untilShared()
    const keyId = newId('apk_')
    const lease = (await hit(counter, keyId)).version as Lease
    counter.confirm({ keyId, version: 1 }, lease)
    t.match(await hit(counter, keyId), { version: 1 })
    await admin.call('ACL', 'SETUSER', 'losing', '-set')
    t.match(await hit(counter, keyId), { turn: { shared: true } })
    t.equal(await counter.raise([{ keyId, version: 2 }]), false)
    await untilDown('no_permission')
    await admin.call('ACL', 'SETUSER', 'losing', '+set')
    await untilShared()
    t.equal(await counter.raise([{ keyId, version: 2 }]), true)
    t.strictSame(causes(), ['no_permission', null])
  })

  t.test('while only changes are refused, Redis goes on counting', async (t) => {
    await allow('losing', ...commands)
    const { client, counter, outages, untilShared } = countAt(t, urlOf('losing'))
    await untilShared()
    await admin.script('FLUSH')
    const keyId = newId('apk_')
    await hit(counter, keyId)
    await admin.eval(sources.probe, 1, 'rl:{probe}:probe')
    await admin.call('ACL', 'SETUSER', 'losing', '-eval')
    let probes = 0
    const { latchkeyProbe } = client as unknown as Commands
    t.intercept(client as unknown as Commands, 'latchkeyProbe', {
      value: (key: string) => {
        probes++
        return latchkeyProbe.call(client, key)
      },
    })
    t.equal(await counter.raise([{ keyId, version: 2 }]), false)
    await until('it has been probed', () => probes > 0)
    t.match(await hit(counter, keyId), { turn: { shared: true } })
    t.strictSame(outages, [])
  })

  t.test('a start is refused a database that does not exist or that the user may not select', async (t) => {
    await allow('counting', ...commands)
    const refusal = async (url: string) => {
      const client = connectRedis(parseRedisUrl(url)!)
      client.on('error', () => {})
      t.teardown(() => client.disconnect())
      const refused = await requireRedisDatabase(client).then(() => '', String)
      if (refused) await until('the client has given up', () => hasEnded(client as Redis))
      else client.disconnect()
      return refused
    }
    t.equal(await refusal(`${redis.url}/1`), '')
    t.match(await refusal(`${redis.url}/99999999`), /REDIS_URL.*\b99999999\b/)
    t.match(await refusal(urlOf('counting', '/3')), /REDIS_URL names database 3.*NOPERM/)

    await admin.call('ACL', 'SETUSER', 'default', 'off')
    t.equal(await refusal(`${redis.url}/1`), '', 'a missing password may be mended')
    await admin.call('ACL', 'SETUSER', 'default', 'on')
    await admin.config('SET', 'lua-time-limit', '50')
    const busy = admin.duplicate()
    const ended = busy.eval('while true do end', 0).catch(() => {})
    await until('it is busy', () =>
      admin.ping().then(
        () => false,
        (error: Error) => error.message.startsWith('BUSY'),
      ),
    )
    t.equal(await refusal(`${redis.url}/1`), '', 'a script that runs too long ends')
    await admin.script('KILL')
    await ended
    busy.disconnect()

    const connections = async () => String(await admin.client('LIST')).match(/ name=latchkey /g)
    await until('every connection is closed', async () => (await connections()) === null)
  })

  t.test('nothing is counted in database 0 when another one is refused later', async (t) => {
    await allow('counting', ...databaseCommands)
    const { client, counter, untilDown, untilShared } = countAt(t, urlOf('counting', '/3'))
    await untilShared()
    await admin.call('ACL', 'SETUSER', 'counting', '-select')
    await admin.call('CLIENT', 'KILL', 'USER', 'counting')
    await untilDown('no_permission')
    const keyId = newId('apk_')
    for (let connections = 0; connections < 3; connections++) {
      await new Promise((resolve) => client.once('connect', resolve))
      t.equal((await hit(counter, keyId)).turn.shared, false)
    }
    t.strictSame(await admin.keys(`*${keyId}*`), [])
    await allow('counting', ...databaseCommands)
    await untilShared()
  })

  t.test('a wrong password is reported as such until it is right', async (t) => {
    await allow('late', ...commands, '<secret', '>another')
    const { counter, causes, untilDown, untilShared } = countAt(t, urlOf('late'))
    await untilDown('wrong_password')
    t.equal(counter.mode(), 'local')
    t.equal((await hit(counter, newId('apk_'))).turn.shared, false)
    await allow('late', ...commands)
    await untilShared()
    t.strictSame(causes(), ['wrong_password', null])
  })

  t.test(
    'the cause distinguishes a replica, a full Redis, one without TLS and one that is gone',
    async (t) => {
      const { counter, untilDown, untilShared } = countAt(t, redis.url)
      const hitUntilDown = async (cause: Outage['cause']) => {
        await hit(counter, newId('apk_'))
        await untilDown(cause)
      }
      await untilShared()
      await admin.call('REPLICAOF', '127.0.0.1', '1')
      await hitUntilDown('read_only')
      await admin.call('REPLICAOF', 'NO', 'ONE')
      await untilShared()
      await admin.config('SET', 'maxmemory', '1')
      await hitUntilDown('out_of_memory')
      await admin.config('SET', 'maxmemory', '0')
      await untilShared()
      await countAt(t, redis.url.replace('redis:', 'rediss:')).untilDown('tls')
      await redis.kill()
      await untilDown('refused')
      t.equal(counter.mode(), 'local')
    },
  )
}

for (const [what, url, cause] of [
  ['unknown', 'redis://latchkey.invalid', 'unknown_host'],
  ['unreachable', 'redis://255.255.255.255', 'unreachable'],
] as const)
  t.test(`a host that is ${what} is reported as such`, async (t) => {
    // Begun in a callback, a connection may fail before ioredis listens to it.
    const { counter, untilDown } = await new Promise<Counting>((resolve) => {
      setImmediate(() => resolve(countAt(t, url)))
    })
    await untilDown(cause)
    t.equal(counter.mode(), 'local')
  })

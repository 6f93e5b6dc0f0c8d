// What one Redis may refuse: a password, a command, a database. And that the permissions of the documentation are enough.
import t, { type Test } from 'tap'
import { connectRedis, requireDatabase } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { outageOf } from '../../src/redis/outage.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { type Outage, Unavailable } from '../../src/stores.ts'
import { hit } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis } from '../services/index.ts'
import { commands, databaseCommands, harmless, refusedCommands } from './acl.ts'
import { observe } from './counters.ts'

const redis = await startPrivateRedis(t)

function countOn(t: Test, url: string) {
  const outages: (Outage | null)[] = []
  const client = connectRedis(parseRedisUrl(url)!)
  const counter = createRedisCounter({ client, onOutage: (outage) => outages.push(outage) })
  t.teardown(() => counter.close())
  return { client, counter, outages, isShared: () => counter.mode === 'shared' }
}

if (redis) {
  const admin = observe(t, redis.url)
  const allow = (user: string, ...rules: string[]) =>
    admin.call('ACL', 'SETUSER', user, 'reset', 'on', '>secret', '~rl:*', ...rules)
  const urlOf = (user: string, db = '') => redis.url.replace('//', `//${user}:secret@`) + db

  for (const db of ['', '/3']) {
    t.test(`the permissions of the documentation are enough${db && ' in another database'}`, async (t) => {
      await allow('counting', ...(db ? databaseCommands : commands))
      const { client, counter, outages, isShared } = countOn(t, urlOf('counting', db))
      await requireDatabase(client)
      await until('it counts in Redis', isShared)
      const keyId = newId('apk_')
      t.match(await hit(counter, keyId), { number: 1, turn: { shared: true } })
      t.equal(await counter.raise([{ keyId, version: 2 }]), true)
      // Without its scripts, and with a version that has no expiry: every command of theirs.
      await admin.script('FLUSH')
      await observe(t, redis.url + db).persist(`rl:{${keyId}}:v`)
      t.match(await hit(counter, keyId), { number: 2, version: 2 })
      t.strictSame(outages, [])
      const refused = await refusedCommands(admin)
      t.strictSame(
        refused.filter((command) => !harmless.includes(command)),
        [],
      )
    })
  }

  for (const missing of commands.filter((command) => !harmless.includes(command.slice(1)))) {
    t.test(`without ${missing} it does not count, and says why`, async (t) => {
      await allow('lacking', ...commands.filter((command) => command !== missing))
      const { counter } = countOn(t, urlOf('lacking'))
      // The client has Redis evaluate a text first, and its hash from then on; the text again where Redis has forgotten it.
      await until('the outage is seen', () => counter.mode === 'shared' || counter.outages.length > 0)
      await hit(counter, newId('apk_'))
      await admin.script('FLUSH')
      await hit(counter, newId('apk_'))
      t.match(counter, { mode: 'local', outages: [{ cause: 'no_permission' }] })
    })
  }

  t.test('a user who may not select the database is refused at the start', async (t) => {
    await allow('counting', ...commands)
    const { client } = countOn(t, urlOf('counting', '/3'))
    await t.rejects(requireDatabase(client), { message: /^REDIS_URL names database 3.*NOPERM/ })
  })

  t.test('nothing is counted in database 0 where another one is refused later', async (t) => {
    await allow('counting', ...databaseCommands)
    const { client, counter, isShared } = countOn(t, urlOf('counting', '/3'))
    await until('it counts in Redis', isShared)
    await admin.call('ACL', 'SETUSER', 'counting', '-select')
    await admin.call('CLIENT', 'KILL', 'USER', 'counting')
    await until('the outage is seen', () => counter.outages[0]?.cause === 'no_permission')
    const keyId = newId('apk_')
    for (let connections = 0; connections < 3; connections++) {
      await new Promise((resolve) => client.once('connect', resolve))
      t.equal((await hit(counter, keyId)).turn.shared, false)
    }
    t.strictSame(await admin.keys(`*${keyId}*`), [])
    await allow('counting', ...databaseCommands)
    await until('it counts in Redis', isShared)
  })

  t.test('a wrong password is told as such, and no longer once it is right', async (t) => {
    await allow('late', ...commands, '<secret', '>another')
    const { counter, outages, isShared } = countOn(t, urlOf('late'))
    await until('the outage is seen', () => counter.outages[0]?.cause === 'wrong_password')
    t.equal(counter.mode, 'local')
    t.equal((await hit(counter, newId('apk_'))).turn.shared, false)
    await allow('late', ...commands)
    await until('it counts in Redis', isShared)
    t.strictSame(
      outages.map((outage) => outage?.cause),
      ['wrong_password', undefined],
    )
  })

  t.test('a replica, one that is full and one that is gone are told as such', async (t) => {
    const { counter, isShared } = countOn(t, redis.url)
    const says = (cause: string) => until('the outage is seen', () => counter.outages[0]?.cause === cause)
    await until('it counts in Redis', isShared)
    await admin.call('REPLICAOF', '127.0.0.1', '1')
    await hit(counter, newId('apk_'))
    await says('read_only')
    await admin.call('REPLICAOF', 'NO', 'ONE')
    await until('it counts in Redis', isShared)
    await admin.config('SET', 'maxmemory', '1')
    await hit(counter, newId('apk_'))
    await says('out_of_memory')
    await admin.config('SET', 'maxmemory', '0')
    await until('it counts in Redis', isShared)
    await redis.kill()
    await says('refused')
  })
}

t.test('a host that nobody knows is told as such', async (t) => {
  const { counter } = countOn(t, 'redis://latchkey.invalid')
  await until('the outage is seen', () => counter.outages[0]?.cause === 'unknown_host')
  t.equal(counter.mode, 'local')
})

const told: [error: Error, cause: Outage['cause']][] = [
  [new Unavailable('no answer in 100 ms'), 'timeout'],
  [new Error('NOAUTH Authentication required.'), 'wrong_password'],
  [new Error('ERR invalid password'), 'wrong_password'],
  [new Error('LOADING Redis is loading the dataset in memory'), 'loading'],
  [new Error('CLUSTERDOWN The cluster is down'), 'cluster_down'],
  [
    new Error('ERR Error running script: @user_script: 1: -READONLY You can not write against a replica.'),
    'read_only',
  ],
  [
    new Error('ERR ACL failure in script: User x has no permissions to run the mget command'),
    'no_permission',
  ],
  [Object.assign(new Error(''), { code: 'ECONNREFUSED' }), 'refused'],
  [Object.assign(new Error('getaddrinfo'), { code: 'EAI_AGAIN' }), 'unknown_host'],
  [Object.assign(new Error('x'), { code: 'EHOSTUNREACH' }), 'unreachable'],
  [Object.assign(new Error('x'), { code: 'ERR_TLS_CERT_ALTNAME_INVALID' }), 'certificate'],
  [Object.assign(new Error('x'), { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' }), 'certificate'],
  [Object.assign(new Error('x'), { code: 'ERR_SSL_WRONG_VERSION_NUMBER' }), 'tls'],
  [new Error('Connection is closed.'), 'disconnected'],
  [new Error('MISCONF Redis is configured to save RDB snapshots'), 'other'],
]

t.test('errors have a cause and a reason, and the reason has no password', async (t) => {
  for (const [error, cause] of told) {
    const outage = outageOf(error)
    t.equal(outage.cause, cause, error.message)
    t.not(outage.reason, '')
  }
  const { reason } = outageOf(new Error("ERR unknown command 'AUTH', with args beginning with: 'secret' "))
  t.equal(reason, "ERR unknown command 'AUTH'")
})

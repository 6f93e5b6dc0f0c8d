// What an operator sees of a Redis that refuses the service.
import t from 'tap'
import { observe } from '../redis/counters.ts'
import { startPrivateRedis, useServices } from '../services/index.ts'
import { externalEnv, runLatchkey, serveLatchkey } from './latchkey.ts'
import { metricsOf, readyBody, untilCause, untilShared } from './redis-fleet.ts'

t.test('a wrong password shows in readiness, metrics and log, but the password itself nowhere', async (t) => {
  const redis = await startPrivateRedis(t, { args: ['--requirepass', 'right-password'] })
  if (!redis) return
  const { databaseUrl } = await useServices(t)
  const redisUrl = redis.url.replace('//', '//:wrong-password@')
  const service = await serveLatchkey(t, externalEnv({ databaseUrl, redisUrl }))
  await untilCause(service, 'wrong_password')
  const line = service.log.find(({ cause }) => cause === 'wrong_password')
  t.match(line, { level: 40, reason: /^WRONGPASS/ })
  const admin = observe(t, redis.url.replace('//', '//:right-password@'))
  await admin.config('SET', 'requirepass', 'wrong-password')
  await untilShared(service)
  t.strictSame(await readyBody(service), { status: 'ready', redis: 'shared', postgres: 'ok' })
  const metrics = await metricsOf(service)
  t.equal(metrics.value('latchkey_redis_degraded'), 0)
  const causes = metrics.samples.filter(({ name }) => name === 'latchkey_redis_degraded_cause')
  t.ok(
    causes.length > 10 && causes.every(({ value }) => value === 0),
    'every cause has a metric, and none is set',
  )
  t.notMatch(service.stdout + service.stderr, /(right|wrong)-password/)
})

t.test('a database that Redis refuses to this user ends the start', async (t) => {
  const redis = await startPrivateRedis(t)
  if (!redis) return
  const { databaseUrl } = await useServices(t)
  await observe(t, redis.url).call('ACL', 'SETUSER', 'counting', 'on', '>secret', '~rl:*', '+@all', '-select')
  const redisUrl = `${redis.url.replace('//', '//counting:secret@')}/3`
  const { code, stderr } = await runLatchkey(t, externalEnv({ databaseUrl, redisUrl }), 'serve')
  t.equal(code, 1)
  t.match(stderr, /^latchkey: REDIS_URL names database 3, which this Redis refuses: NOPERM .*\n$/)
})

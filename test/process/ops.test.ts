// The ops listener: what a probe, a scraper and an operator see, also while Redis or Postgres is down.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { startPrivatePostgres, startPrivateRedis, useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { externalEnv, type Serving, serveLatchkey } from './latchkey.ts'
import { parsePrometheus } from './prometheus.ts'
import { until } from './until.ts'

const ready = async ({ opsUrl }: Serving) => ask(`GET ${opsUrl}/readyz`)
const metrics = async ({ opsUrl }: Serving) => parsePrometheus((await ask(`GET ${opsUrl}/metrics`)).text)
const verify = ({ url }: Serving, token: string) => ask(`GET ${url}/v1/verify`, { token })

const services = await useServices(t)
const instance = await startInstance(t, services)
const service = await serveLatchkey(t, externalEnv(services))

t.test(
  'the ops listener has a port of its own, probes that need no key, and the envelope for the rest',
  async (t) => {
    t.not(service.url, service.opsUrl)
    t.equal((await ask(`GET ${service.opsUrl}/healthz`)).status, 200)
    const { status, body, headers } = await ready(service)
    t.equal(status, 200)
    t.match(body, { status: 'ready', redis: String, postgres: 'ok' })
    t.equal(headers.get('cache-control'), 'no-store')

    for (const path of ['/nothing', '/v1/keys', '/v1/verify', '/metrics/x']) {
      const { status, body, headers } = await ask(`GET ${service.opsUrl}${path}`)
      t.equal(status, 404, path)
      t.match(body.error, {
        ...{ type: 'not_found_error', code: 'route_not_found', message: /./, param: '', suggestion: /./ },
        ...{ docs_url: /\/docs\/errors\/route_not_found$/, request_id: headers.get('x-request-id')! },
      })
    }
    const malformed = await ask(`GET ${service.opsUrl}/%zz`)
    t.ok(malformed.status === 400 || malformed.status === 404)
    const envelope = { code: String, docs_url: String, request_id: /^req_/, suggestion: String }
    t.match(malformed.body.error, envelope, 'a malformed path too')
    for (const path of ['/healthz', '/readyz', '/metrics']) {
      t.equal((await ask(`GET ${service.url}${path}`)).status, 401, `${path} is not on the public listener`)
    }
  },
)

t.test(
  'the metrics are Prometheus text and count what was answered, refused, limited and batched',
  async (t) => {
    for (;;) {
      const caller = await makeCaller(instance, { rateLimitRpm: 3 })
      const before = await metrics(service)
      const resets = new Set<string | null>()
      for (const expected of [200, 200, 200, 429, 429]) {
        const { status, headers } = await verify(service, caller.token)
        resets.add(headers.get('x-ratelimit-reset'))
        if (resets.size === 1) t.equal(status, expected)
      }
      // The minute ended in between, and the key was admitted again: once more, in the new one.
      if (resets.size > 1) continue
      await verify(service, `${caller.token}0`)
      await ask(`GET ${service.url}/v1/verify`, { headers: { authorization: 'Basic eDp5' } })
      await ask(`GET ${service.url}/v1/verify`)
      await ask(`GET ${service.url}/v1/verify`)

      const { text, headers } = await ask(`GET ${service.opsUrl}/metrics`)
      t.match(headers.get('content-type'), /^text\/plain; version=0\.0\.4/)
      const after = parsePrometheus(text)
      const grew = (name: string, labels: Record<string, string> = {}) =>
        after.value(name, labels) - before.value(name, labels)
      t.equal(grew('latchkey_requests_total', { status: '200' }), 3)
      t.equal(grew('latchkey_requests_total', { status: '429' }), 2)
      t.equal(grew('latchkey_requests_total', { status: '401' }), 4)
      t.equal(grew('latchkey_rate_limited_total'), 2)
      t.equal(grew('latchkey_refusals_total', { reason: 'unknown_key' }), 1)
      t.equal(grew('latchkey_refusals_total', { reason: 'wrong_scheme' }), 1)
      t.equal(grew('latchkey_refusals_total', { reason: 'missing_header' }), 2)
      t.equal(grew('latchkey_audit_commit_seconds_count'), 4, 'one after the other, each a batch of one')
      t.equal(grew('latchkey_batch_size_sum', { batch: 'audit' }), 4)
      t.ok(grew('latchkey_batch_size_sum', { batch: 'lookups' }) >= 2, 'the new key and the unknown one')
      for (const reason of ['wrong_prefix', 'revoked', 'expired', 'owner_deleted']) {
        const sample = after.samples.find(({ labels }) => labels.reason === reason)
        t.equal(sample?.value, 0, `${reason} exists before its first refusal`)
      }
      t.equal(after.types.get('latchkey_requests_total'), 'counter')
      t.equal(after.types.get('latchkey_batch_size'), 'histogram')
      t.equal(after.types.get('latchkey_audit_commit_seconds'), 'histogram')
      t.notOk(text.includes(caller.token.slice(10)), 'no metric has a secret')
      return
    }
  },
)

t.test(
  'the readiness body and the gauge follow a Redis that freezes and comes back, and it stays ready',
  async (t) => {
    const redis = await startPrivateRedis(t)
    if (redis === null) return
    const { databaseUrl, connectRedis } = await useServices(t)
    const services = { databaseUrl, redisUrl: redis.url, connectRedis }
    const caller = await makeCaller(await startInstance(t, services))
    const service = await serveLatchkey(t, externalEnv(services))
    const degraded = async () => (await metrics(service)).value('latchkey_redis_degraded')

    t.equal((await verify(service, caller.token)).status, 200)
    t.match((await ready(service)).body, { redis: 'shared' })
    t.equal(await degraded(), 0)
    t.ok((await metrics(service)).value('latchkey_batch_size_count', { batch: 'counter' }) >= 1)

    await redis.freeze()
    t.equal((await verify(service, caller.token)).status, 200)
    const { status, body } = await ready(service)
    t.equal(status, 200, 'a shared server that is down does not fail it')
    t.match(body, { status: 'ready', redis: 'local' })
    t.equal(await degraded(), 1)

    await redis.thaw()
    await until('it counts in Redis again', async () => (await ready(service)).body.redis === 'shared')
    t.equal(await degraded(), 0)
  },
)

t.test(
  'the readiness body and the gauge follow a Postgres that is killed and restarted, and it stays ready',
  async (t) => {
    const postgres = await startPrivatePostgres(t)
    const { redisUrl, connectRedis } = await useServices(t)
    const services = { databaseUrl: postgres.url, redisUrl, connectRedis }
    const instance = await startInstance(t, services)
    const caller = await makeCaller(instance)
    await instance.close()
    const service = await serveLatchkey(t, externalEnv(services))
    const degraded = async () => (await metrics(service)).value('latchkey_postgres_degraded')
    t.match((await ready(service)).body, { postgres: 'ok' })
    t.equal(await degraded(), 0)

    await postgres.kill()
    t.equal((await verify(service, caller.token)).status, 503, 'a key never seen cannot be decided')
    const { status, body } = await ready(service)
    t.equal(status, 200)
    t.match(body, { status: 'ready', postgres: 'down' })
    t.equal(await degraded(), 1)
    t.equal((await ask(`GET ${service.opsUrl}/healthz`)).status, 200)

    await postgres.restart()
    await until('keys are looked up again', async () => (await verify(service, caller.token)).status === 200)
    t.match((await ready(service)).body, { postgres: 'ok' })
    t.equal(await degraded(), 0)
  },
)

t.test('what is shed because too many wait for a connection to Postgres is counted', async (t) => {
  const { service } = await startInstance(t, await useServices(t))
  const list = () => service.stores.keys.list('usr_nobody', { limit: 1 })
  await Promise.allSettled(Array.from({ length: 600 }, list))
  const { value } = parsePrometheus(await service.metrics.registry.metrics())
  const shed = (queue: string) => value('latchkey_shed_total', { queue })
  // One user: two connections, and 500 that wait.
  t.equal(shed('postgres_management'), 98)
  t.equal(shed('postgres_lookups'), 0)
})

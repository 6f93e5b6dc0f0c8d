// The ops listener: what a probe, a scraper and an operator see. (While Postgres is down:
// test/api/unavailable.test.ts.)
import t from 'tap'
import { openGuarding } from '../../src/process/guarding.ts'
import { newId } from '../../src/rules/id.ts'
import type { RefusalRecord } from '../../src/stores.ts'
import { sendRaw } from '../api/raw-http.ts'
import { makeCaller, startInstance, startOps } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { parsePrometheus } from './prometheus.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const { url, port } = instance
const { url: opsUrl } = await startOps(t, instance)

const metrics = async () => parsePrometheus((await ask(`GET ${opsUrl}/metrics`)).text)
const verify = (token: string) => ask(`GET ${url}/v1/verify`, { token })

t.test(
  'the ops listener has a port of its own, probes that need no key, and the envelope for the rest',
  async (t) => {
    t.equal((await ask(`GET ${opsUrl}/healthz`)).status, 200)
    const { status, body, headers } = await ask(`GET ${opsUrl}/readyz`)
    t.equal(status, 200)
    t.match(body, { status: 'ready', redis: String, postgres: 'ok' })
    t.equal(headers.get('cache-control'), 'no-store')

    for (const path of ['/nothing', '/v1/keys', '/v1/verify', '/metrics/x']) {
      const { status, body, headers } = await ask(`GET ${opsUrl}${path}`)
      t.equal(status, 404, path)
      t.match(body.error, {
        ...{ type: 'not_found_error', code: 'route_not_found', message: /./, param: '', suggestion: /./ },
        ...{ docs_url: /\/docs\/errors\/route_not_found$/, request_id: headers.get('x-request-id')! },
      })
    }
    const malformed = await ask(`GET ${opsUrl}/%zz`)
    t.ok(malformed.status === 400 || malformed.status === 404)
    const envelope = { code: String, docs_url: String, request_id: /^req_/, suggestion: String }
    t.match(malformed.body.error, envelope, 'a malformed path too')
    for (const path of ['/healthz', '/readyz', '/metrics']) {
      t.equal((await ask(`GET ${url}${path}`)).status, 401, `${path} is not on the public listener`)
    }
  },
)

t.test(
  'the metrics are Prometheus text and count what was answered, refused, limited and batched',
  async (t) => {
    for (;;) {
      const caller = await makeCaller(instance, { rateLimitRpm: 3 })
      const before = await metrics()
      const resets = new Set<string | null>()
      for (const expected of [200, 200, 200, 429, 429]) {
        const { status, headers } = await verify(caller.token)
        resets.add(headers.get('x-ratelimit-reset'))
        if (resets.size === 1) t.equal(status, expected)
      }
      // The minute ended in between, and the key was admitted again: once more, in the new one.
      if (resets.size > 1) continue
      await verify(`${caller.token}0`)
      await ask(`GET ${url}/v1/verify`, { headers: { authorization: 'Basic eDp5' } })
      await ask(`GET ${url}/v1/verify`)
      await ask(`GET ${url}/v1/verify`)
      t.equal((await sendRaw(port, 'GET', '/v1/verify', ['Host: another.test'])).status, 400)
      t.equal((await sendRaw(port, 'F@O', '/v1/verify')).status, 400)

      const { text, headers } = await ask(`GET ${opsUrl}/metrics`)
      t.match(headers.get('content-type'), /^text\/plain; version=0\.0\.4/)
      const after = parsePrometheus(text)
      const grew = (name: string, labels: Record<string, string> = {}) =>
        after.value(name, labels) - before.value(name, labels)
      t.equal(grew('latchkey_requests_total', { status: '200' }), 3)
      t.equal(grew('latchkey_requests_total', { status: '429' }), 2)
      t.equal(grew('latchkey_requests_total', { status: '401' }), 4)
      t.equal(grew('latchkey_requests_total', { status: '400' }), 2, 'one of them refused by the parser')
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

t.test('what finds a full queue is counted under the name of the queue', async (t) => {
  const { verify, hit, record, metrics, close } = await openGuarding(instance.config, console, {
    role: 'serve',
  })
  t.teardown(close)
  const { token } = await makeCaller(instance)
  const caller = await new Promise<Parameters<typeof hit>[0]>((resolve, reject) => {
    verify(token, (error, found) => (found?.ok ? resolve(found.caller) : reject(error)))
  })
  const missing = (n: number): RefusalRecord => ({
    ...{ requestId: newId('req_'), reason: 'missing_header', ip: `10.0.${n >> 8}.${n & 255}` },
    ...{ keyId: null, userId: null, method: 'GET', path: '/', userAgent: null, details: null },
  })
  const done = () => {}
  // All in one turn: nothing is sent before its end.
  const recorded = Promise.allSettled(Array.from({ length: 10_001 }, (_, n) => record(missing(n))))
  for (let n = 0; n < 10_002; n++) verify(`lk_${n}`, done)
  for (let n = 0; n < 50_003; n++) hit(caller, done)
  await recorded
  const { value } = parsePrometheus(await metrics.registry.metrics())
  const shed = ['audit', 'lookups', 'counter'].map((queue) => value('latchkey_shed_total', { queue }))
  // What is counted in memory does not wait.
  t.strictSame(shed, [1, 2, services.redisUrl === null ? 0 : 3])
})

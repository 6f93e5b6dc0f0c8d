// A deploy: every instance is stopped and started again, one after the other, and no client notices.
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { quantile, startLoad, statuses } from '../load.ts'
import { externalEnv, listening, type Serving, spawnLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { startLoadBalancer, useServices } from '../services/index.ts'
import { freePort } from '../services/ports.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'

const instances = 3
const restarts = scaled(2, 20)
/** The default; in CI just what haproxy needs, which asks five times a second. nginx never asks. */
const drainSeconds = soaking ? '3' : '1'
const stopMaxMs = 10_000

for (const balancer of ['haproxy', 'nginx'] as const) {
  t.test(`instances restarted in turn behind ${balancer}: not one request fails`, (t) => roll(t, balancer))
}

async function roll(t: Test, balancer: 'haproxy' | 'nginx') {
  const services = await useServices(t)
  const seeding = await startInstance(t, services)
  const caller = await makeCaller(seeding)
  await seeding.close()

  // As the load balancer knows them: by ports that stay.
  const ports = []
  for (let i = 0; i < instances; i++) ports.push({ port: await freePort(), opsPort: await freePort() })
  const start = async ({ port, opsPort }: { port: number; opsPort: number }): Promise<Serving> => {
    const env = { PORT: String(port), OPS_PORT: String(opsPort), DRAIN_SECONDS: drainSeconds }
    return listening(await spawnLatchkey(t, externalEnv(services, env), 'serve'))
  }
  const serving = await Promise.all(ports.map(start))
  const backends = ports.map(({ port, opsPort }) => ({ host: `127.0.0.1:${port}`, readyPort: opsPort }))
  const front = await startLoadBalancer(t, balancer, backends)
  if (front === null) return

  const load = (method: string, path: string, perSecond: number, json?: unknown) =>
    startLoad(t, { urls: [front.url], tokens: [caller.token], method, path, perSecond, json })
  const loads = [
    load('GET', '/v1/verify', 300),
    load('GET', '/v1/keys?limit=1', 20),
    // A load balancer may send these only once: what a stop would lose is seen here.
    load('PATCH', `/v1/keys/${caller.id}`, 20, { name: 'changed' }),
  ]
  const stopsMs: number[] = []
  for (let i = 0; i < restarts; i++) {
    const which = i % instances
    const startMs = performance.now()
    serving[which]!.kill('SIGTERM')
    const { code, stderr } = await serving[which]!.ended
    stopsMs.push(performance.now() - startMs)
    t.equal(code, 0, stderr)
    const again = await start(ports[which]!)
    serving[which] = again
    // The next is stopped once this one has its share again.
    await until('it is asked again', async () => (await answers(again)) > 5)
  }
  const samples = (await Promise.all(loads.map((one) => one.stop()))).flat()
  const failed = samples.filter(({ status }) => status !== 200)
  t.same(
    failed.map(({ status, fault, body }) => ({ status, fault, body })),
    [],
    `of ${samples.length} requests`,
  )
  t.ok(Math.max(...stopsMs) < stopMaxMs, `a stop takes ${Math.round(Math.max(...stopsMs))} ms at most`)
  const p99 = quantile(
    samples.map(({ tookMs }) => tookMs),
    0.99,
  )
  recordFigure(
    `rolling-${balancer}`,
    `${restarts} restarts, ${failed.length} of ${samples.length} requests failed ${JSON.stringify(statuses(samples))}, p99 ${p99.toFixed(0)} ms, a stop ${(Math.max(...stopsMs) / 1000).toFixed(1)} s at most`,
  )
}

/** Requests that an instance has answered. */
async function answers({ opsUrl }: Serving): Promise<number> {
  const text = await (await fetch(`${opsUrl}/metrics`)).text()
  return Number(/^latchkey_requests_total\{status="200"\} (\d+)/m.exec(text)?.[1] ?? 0)
}

// A deploy: every instance is stopped and started again, one after the other, and no request fails.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { p99, startLoad } from '../load.ts'
import { externalEnv, listening, type Serving, spawnLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { startLoadBalancer, useServices } from '../services/index.ts'
import { freePort } from '../services/ports.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'

const instances = scaled(2, 3)
/** nginx does not check readiness: it sends requests until a connection is refused. */
const balancers = [
  ['rolling-haproxy', 'haproxy'],
  ['rolling-nginx', 'nginx'],
] as const
const restarts = scaled(2, 20)
/**
 * The default. haproxy checks five times a second; in a short run the machine has other work, too.
 */
const drainSeconds = soaking ? '3' : '8'
const stopMaxMs = 10_000

t.test('instances restarted in turn behind a load balancer: not one request fails', async (t) => {
  const services = await useServices(t)
  const seeding = await startInstance(t, services)
  const caller = await makeCaller(seeding)
  await seeding.close()

  // Fixed, for the load balancer.
  const ports = []
  for (let i = 0; i < instances; i++) ports.push({ port: await freePort(), opsPort: await freePort() })
  const start = async ({ port, opsPort }: { port: number; opsPort: number }): Promise<Serving> => {
    const env = { PORT: String(port), OPS_PORT: String(opsPort), DRAIN_SECONDS: drainSeconds }
    return listening(await spawnLatchkey(t, externalEnv(services, env), 'serve'))
  }
  const serving = await Promise.all(ports.map(start))
  const backends = ports.map(({ port, opsPort }) => ({ host: `127.0.0.1:${port}`, readyPort: opsPort }))
  const loads = []
  for (const [row, balancer] of balancers) {
    const front = await startLoadBalancer(t, balancer, backends)
    if (front === null) continue
    const load = (method: string, path: string, perSecond: number, json?: unknown) =>
      startLoad(t, { urls: [front.url], tokens: [caller.token], method, path, perSecond, json })
    const together = [
      load('GET', '/v1/verify', scaled(10, 200)),
      load('GET', '/v1/keys?limit=1', scaled(2, 20)),
      // A load balancer may send these only once, so they show what a stop loses.
      load('PATCH', `/v1/keys/${caller.id}`, scaled(2, 20), { name: 'changed' }),
    ]
    loads.push({ row, balancer, url: front.url, together })
  }
  if (loads.length === 0) return
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
    // The next is stopped once every load balancer sends requests to this one again.
    const name = await nameThrough(again.url)
    for (const { balancer, url } of loads)
      await until(`${balancer} uses it again`, async () => (await nameThrough(url)) === name)
  }
  if (soaking)
    t.ok(Math.max(...stopsMs) < stopMaxMs, `a stop takes ${Math.round(Math.max(...stopsMs))} ms at most`)
  for (const { row, balancer, together } of loads) {
    const samples = (await Promise.all(together.map((one) => one.stop()))).flat()
    const failed = samples.filter(({ status }) => status !== 200)
    t.same(
      failed.map(({ status, fault, body }) => ({ status, fault, body })),
      [],
      `of ${samples.length} requests through ${balancer}`,
    )
    recordFigure(t, row, {
      restarts: stopsMs.length,
      failed: failed.length,
      requests: samples.length,
      p99Ms: p99(samples),
      longestStopS: Math.max(...stopsMs) / 1000,
    })
  }
})

/** The part of a request id that all ids of one instance share: which instance answers there. */
async function nameThrough(url: string): Promise<string | undefined> {
  const { headers } = await fetch(url)
  return headers.get('x-request-id')?.slice(-12)
}

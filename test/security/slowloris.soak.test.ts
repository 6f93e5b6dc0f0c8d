// Slow clients try to hold all connections. Theirs are closed in time, and nobody else is slower
// for it.
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { p99, startLoad, statuses } from '../load.ts'
import { externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { bearer, host, json, message } from './requests.ts'
import { openWire, statusesOf, type Wire } from './wire.ts'

const sockets = scaled(200, 2000)
const calmMs = scaled(2000, 20_000)
const perSecond = 200
/**
 * What the service gives the headers and the whole of a request, and how often it checks
 * (docs/operations.md).
 */
const headersMs = 10_000
const wholeMs = 20_000
const lookEveryMs = 50
/** For a busy machine. */
const slackMs = 2000
/**
 * A calm p99 below this counts as this, because twice nothing is nothing. In CI, other programs
 * must not decide.
 */
const floorMs = scaled(25, 5)
const warmUpMs = 1000
/** Connections to Postgres that it may open meanwhile and keep (docs/operations.md). */
const ownSocketsMax = 9

interface Slowness {
  kind: string
  /** Sent at once. */
  begin: string
  /** Sent once a second; if empty, only silence follows. */
  drip: string
  givenMs: number
  /** Null: closed without one, since it has not begun a request. */
  answer: number | null
}

const slowHeaders: Slowness[] = [
  { kind: 'headers byte by byte', begin: `GET /v1/verify HTTP/1.1\r\n${host}\r\nX-Slow: `, drip: 'a' },
  { kind: 'headers line by line', begin: `GET /v1/verify HTTP/1.1\r\n${host}\r\n`, drip: 'X-Slow: a\r\n' },
  { kind: 'half a line', begin: 'GET /v1/ver', drip: '' },
  { kind: 'nothing at all', begin: '', drip: '', answer: null },
].map((slowness) => ({ answer: 408, ...slowness, givenMs: headersMs }))

function slowBodies(token: string): Slowness[] {
  const head = ['POST /v1/keys HTTP/1.1', host, json]
  const length = 'Content-Length: 16000'
  const begin = '{"name":"'
  const chunked = message([...head, bearer(token), 'Transfer-Encoding: chunked'])
  return [
    { kind: 'a body byte by byte', begin: message([...head, bearer(token), length], begin), drip: 'a' },
    { kind: 'no byte of a body', begin: message([...head, bearer(token), length]), drip: '' },
    { kind: 'chunk by chunk', begin: chunked, drip: '1\r\na\r\n' },
    { kind: 'a body that nobody reads', begin: message([...head, length], begin), drip: 'a', answer: 401 },
  ].map((slowness) => ({ answer: 408, ...slowness, givenMs: wholeMs }))
}

t.test(`${sockets} connections whose headers do not come are closed, and the others do not notice`, (t) =>
  besiege(t, 'slow-headers', headersMs, () => slowHeaders),
)

if (soaking) {
  t.test(`${sockets} connections, half of whose headers and half of whose bodies do not come`, (t) =>
    besiege(t, 'slow-bodies', wholeMs, (token) => [...slowHeaders, ...slowBodies(token)]),
  )
}

async function besiege(
  t: Test,
  row: 'slow-headers' | 'slow-bodies',
  boundMs: number,
  slow: (token: string) => Slowness[],
) {
  const services = await useServices(t)
  const seeding = await startInstance(t, services)
  const [good, bad] = [await makeCaller(seeding), await makeCaller(seeding)]
  await seeding.close()
  const service = await serveLatchkey(t, externalEnv(services))

  const begin = () => startLoad(t, { urls: [service.url], tokens: [good.token], perSecond })
  const calming = begin()
  await pause(warmUpMs)
  const warm = calming.samples.length
  await pause(calmMs)
  const calm = (await calming.stop()).slice(warm)
  const before = await held(service)
  const load = begin()
  const slowly = await openSlowly(t, service.port, slow(bad.token))
  const during = await until('it holds them all', async () => {
    const now = await held(service)
    return now.sockets >= before.sockets + sockets && now
  })
  await until(
    'all are ended',
    () => slowly.every(({ livedMs }) => livedMs !== null),
    boundMs + lookEveryMs + slackMs,
  )
  const samples = await load.stop()

  for (const { slowness, livedMs, wire } of slowly) {
    const { kind, givenMs, answer } = slowness
    const inTime = livedMs! > givenMs - slackMs && livedMs! < givenMs + lookEveryMs + slackMs
    if (!inTime) t.fail(`${kind}: ended after ${livedMs} ms`)
    if (statusesOf(wire.answers).join() !== `${answer ?? ''}` || wire.rest !== '')
      t.fail(`${kind}: got ${statusesOf(wire.answers)} ${wire.rest}`)
  }
  t.same(statuses(samples), { 200: samples.length }, 'every good request is answered')
  const [calmP99Ms, p99Ms] = [p99(calm), p99(samples)]
  t.ok(
    p99Ms <= 2 * Math.max(calmP99Ms, floorMs),
    `p99 ${p99Ms.toFixed(1)} ms, ${calmP99Ms.toFixed(1)} ms when calm`,
  )
  const after = await until('it holds no more sockets than before', async () => {
    const now = await held(service)
    return now.sockets <= before.sockets + ownSocketsMax && now
  })
  const longestMs = Math.max(...slowly.map(({ livedMs }) => livedMs!))
  const [beforeMb, duringMb, afterMb] = [before, during, after].map(({ rss }) => rss / 1e6)
  recordFigure(t, row, {
    connections: slowly.length,
    longestS: longestMs / 1000,
    served: samples.filter(({ status }) => status === 200).length,
    requests: samples.length,
    p99Ms,
    calmP99Ms,
    beforeMb: beforeMb!,
    duringMb: duringMb!,
    afterMb: afterMb!,
  })
}

interface SlowSocket {
  slowness: Slowness
  wire: Wire
  /** Until the other side ended it; null while it is open. */
  livedMs: number | null
}

/**
 * They open and drip evenly and not all at one moment: the test is about what they cost the
 * service, not what they cost here.
 */
const ticksPerSecond = 50
const openedPerTick = 10

/** Resolves when all are open and have begun. */
async function openSlowly(t: Test, port: number, kinds: readonly Slowness[]): Promise<SlowSocket[]> {
  const all: SlowSocket[] = []
  let tick = 0
  const dripping = setInterval(() => {
    tick = (tick + 1) % ticksPerSecond
    for (let i = tick; i < all.length; i += ticksPerSecond) {
      const { slowness, wire } = all[i]!
      if (slowness.drip !== '' && wire.socket.writable) void wire.write(slowness.drip)
    }
  }, 1000 / ticksPerSecond)
  t.teardown(() => {
    clearInterval(dripping)
    for (const { wire } of all) wire.socket.destroy()
  })
  while (all.length < sockets) {
    const some = Array.from({ length: Math.min(openedPerTick, sockets - all.length) }, async (_, i) => {
      const slowness = kinds[(all.length + i) % kinds.length]!
      const wire = openWire(port)
      const one: SlowSocket = { slowness, wire, livedMs: null }
      await once(wire.socket, 'connect')
      const beganMs = performance.now()
      wire.socket.once('close', () => {
        one.livedMs = performance.now() - beganMs
      })
      if (slowness.begin !== '') void wire.write(slowness.begin)
      return one
    })
    all.push(...(await Promise.all(some)))
    await pause(1000 / ticksPerSecond)
  }
  return all
}

/** What the service holds, by its own metrics. */
async function held({ opsUrl }: Serving) {
  const metrics = parsePrometheus(await (await fetch(`${opsUrl}/metrics`)).text())
  return {
    sockets: metrics.value('nodejs_active_handles', { type: 'Socket' }),
    rss: metrics.value('process_resident_memory_bytes'),
  }
}

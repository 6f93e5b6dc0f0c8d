// Slow clients hold connections, and are meant to hold them all. They are told to go in time, and nobody else is slower for it.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { quantile, type Sample, startLoad, statuses } from '../load.ts'
import { externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { bearer, host, json, message } from './requests.ts'
import { openSlowSockets, type Slowness } from './slow-sockets.ts'

const sockets = scaled(200, 2000)
const calmMs = scaled(2000, 20_000)
const perSecond = 200
/** What the service gives a request, and how often it looks (docs/operations.md): headers, and all of it. */
const headersMs = 10_000
const wholeMs = 20_000
const lookEveryMs = 250
/** For a machine that does something else at that moment. */
const slackMs = 2000
/** A calm p99 below this is taken for this: twice nothing is nothing. In CI a neighbour's work must not decide. */
const floorMs = scaled(25, 5)
const warmUpMs = 1000
/** Connections to Postgres that it may open meanwhile, and keeps (docs/operations.md). */
const ownSocketsMax = 9

interface Expected extends Slowness {
  givenMs: number
  answer: number
}

const slowHeaders: Expected[] = [
  { kind: 'headers byte by byte', begin: `GET /v1/verify HTTP/1.1\r\n${host}\r\nX-Slow: `, drip: 'a' },
  { kind: 'headers line by line', begin: `GET /v1/verify HTTP/1.1\r\n${host}\r\n`, drip: 'X-Slow: a\r\n' },
  { kind: 'half a line', begin: 'GET /v1/ver', drip: '' },
  { kind: 'nothing at all', begin: '', drip: '' },
].map((slowness) => ({ ...slowness, givenMs: headersMs, answer: 408 }))

function slowBodies(token: string): Expected[] {
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

t.test(`${sockets} connections whose headers do not come are ended, and the others do not notice`, (t) =>
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
  slow: (token: string) => Expected[],
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
  const slowly = await openSlowSockets(t, service.port, sockets, slow(bad.token))
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

  for (const { slowness, livedMs, received } of slowly) {
    const { kind, givenMs, answer } = slowness
    const inTime = livedMs! > givenMs - slackMs && livedMs! < givenMs + lookEveryMs + slackMs
    if (!inTime) t.fail(`${kind}: ended after ${livedMs} ms`)
    // Every one has its answer, and only one.
    if (received.match(/HTTP\/1\.1 [0-9]+/g)?.join() !== `HTTP/1.1 ${answer}`)
      t.fail(`${kind}: answered ${received}`)
  }
  t.same(statuses(samples), { 200: samples.length }, 'every good request is answered')
  const [calmP99, p99] = [p99Of(calm), p99Of(samples)]
  t.ok(p99 <= 2 * Math.max(calmP99, floorMs), `p99 ${p99.toFixed(1)} ms, ${calmP99.toFixed(1)} ms when calm`)
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
    p99Ms: p99,
    calmP99Ms: calmP99,
    beforeMb: beforeMb!,
    duringMb: duringMb!,
    afterMb: afterMb!,
  })
}

const p99Of = (samples: readonly Sample[]) =>
  quantile(
    samples.map(({ tookMs }) => tookMs),
    0.99,
  )

/** What the service holds, as it says itself. */
async function held({ opsUrl }: Serving) {
  const metrics = parsePrometheus(await (await fetch(`${opsUrl}/metrics`)).text())
  return {
    sockets: metrics.value('nodejs_active_handles', { type: 'Socket' }),
    rss: metrics.value('process_resident_memory_bytes'),
  }
}

// Whatever bytes are sent, each request is answered or closed in time, in the documented form, and
// counted once if it has a key.
import t from 'tap'
import { startInstance } from '../instance.ts'
import { externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { openClient } from './fuzz-client.ts'
import { requests } from './fuzz-requests.ts'
import { holdsInLanes, tallyOf } from './seed.ts'

const lanes = 12
/**
 * At least; a brief run goes on until each of these has been seen. Otherwise the requests would not
 * reach what they are to try.
 */
const wanted = scaled(1000, 300_000)
const tally = tallyOf([
  ...['200', '200 page', '200 to HEAD', '201', '400 invalid_json', '400 missing_parameter'],
  ...['400 unknown_parameter', '400 invalid_parameter', '400 bad_request', '401 unauthorized'],
  ...['404 not_found', '404 route_not_found', '405 method_not_allowed', '409 key_not_active'],
  ...[
    '409 key_limit_reached',
    '413 payload_too_large',
    '415 unsupported_media_type',
    '431 headers_too_large',
  ],
])

const services = await useServices(t)
const env = { BASE_URL: 'http://latchkey.test', MAX_KEYS_PER_USER: '4' }
const maker = await startInstance(t, services, env)

/**
 * In the soak the service is a process, because what ends it is a finding; then another one
 * replaces it, on which the finding is shrunk. In a brief run it is the instance in this process,
 * where an exception that nobody catches fails the test.
 */
type Target = Pick<Serving, 'log' | 'port'>
const started: Target[] = [maker]
const ends: string[] = []
let isOver = false
let current: Promise<Target> = soaking ? start() : Promise.resolve(maker)
async function start() {
  const serving = await serveLatchkey(t, externalEnv(services, env))
  started.push(serving)
  void serving.ended.then(({ code, signal, stderr }) => {
    if (isOver) return
    ends.push(`ended by ${signal ?? code}: ${stderr}`)
    current = start()
  })
  return serving
}
const portNow = async () => (await current).port
function expectAlive() {
  if (ends.length > 0) throw new Error(ends.splice(0).join('; '))
}

t.test(
  'any bytes sent are answered or closed in time, as documented, and counted once with a key',
  async (t) => {
    const clients = await Promise.all(Array.from({ length: lanes }, () => openClient(maker, portNow)))
    let longestMs = 0
    const held = await holdsInLanes(
      t,
      requests,
      async (request, lane) => {
        const { kind, tookMs } = await clients[lane]!.send(request).finally(expectAlive)
        longestMs = Math.max(longestMs, tookMs)
        tally.add(kind)
      },
      { lanes, numRuns: 50, more: () => tally.total < wanted || (!soaking && tally.missing().length > 0) },
    )
    isOver = true
    t.comment(`${tally.total} requests, the longest ${Math.round(longestMs)} ms: ${tally}`)
    const faults = started.flatMap(({ log }) => log.filter(({ level }) => Number(level) >= 50))
    t.same(faults, [], 'the service found no fault of its own')
    if (!held) return
    const unavailable = tally.count('503 service_unavailable')
    if (soaking) t.ok(unavailable <= tally.total / 1000, `${unavailable} × 503: a server was too slow`)
    t.same(tally.missing(), [], 'every kind of response was among them')
    recordFigure(t, 'request-fuzz', { requests: tally.total, unavailable, longestMs })
  },
)

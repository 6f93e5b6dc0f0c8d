// Whatever bytes are sent, each request is answered or closed in time, in the documented form, and counted once if it has a key.
import t from 'tap'
import { startInstance } from '../instance.ts'
import { externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { type Lane, openLane, type Target } from './fuzz-lane.ts'
import { requests } from './fuzz-requests.ts'
import { holdsInLanes } from './seed.ts'

/** At least; a brief run goes on until everything has happened that must. */
const wanted = scaled(1500, 300_000)
const lanes = 12
/** Each must have been seen: else the requests do not reach what they are to try. */
const mustHappen = [
  ...['200', '200 page', '200 to HEAD', '201', '400 invalid_json', '400 missing_parameter'],
  ...['400 unknown_parameter', '400 invalid_parameter', '400 bad_request', '401 unauthorized'],
  ...['404 not_found', '404 route_not_found', '405 method_not_allowed', '409 key_not_active'],
  ...[
    '409 key_limit_reached',
    '413 payload_too_large',
    '415 unsupported_media_type',
    '431 headers_too_large',
  ],
]

const services = await useServices(t)
const env = {
  BASE_URL: 'http://latchkey.test',
  MAX_KEYS_PER_USER: '4',
}
const maker = await startInstance(t, services, env)

/** The service as a process, since what ends it is what is looked for. */
function serviceThatMayEnd(): Target & { over(): void; faults(): unknown[] } {
  const ends: string[] = []
  const all: Serving[] = []
  let isOver = false
  let current = start()
  function start() {
    const starting = serveLatchkey(t, externalEnv(services, env))
    const watch = (serving: Serving) => {
      all.push(serving)
      void serving.ended.then(({ code, signal, stderr }) => {
        if (isOver) return
        ends.push(`ended by ${signal ?? code}: ${stderr}`)
        current = start()
      })
    }
    // Whoever asks for its port is told why it did not start.
    starting.then(watch, () => {})
    return starting
  }
  return {
    over() {
      isOver = true
    },
    port: async () => (await current).port,
    alive() {
      if (ends.length > 0) throw new Error(ends.splice(0).join('; '))
    },
    faults: () => all.flatMap(({ log }) => log.filter(({ level }) => Number(level) >= 50)),
  }
}

t.test(
  'any bytes sent are answered or closed in time, as documented, and counted once with a key',
  async (t) => {
    const target = serviceThatMayEnd()
    const clients = await Promise.all(Array.from({ length: lanes }, () => openLane(maker, target)))
    const tally = new Map<string, number>()
    let sent = 0
    let longestMs = 0
    const missing = () => mustHappen.filter((what) => !tally.has(what))
    const begunMs = performance.now()
    const held = await holdsInLanes(
      t,
      requests,
      async (request, lane) => {
        const { kind, tookMs } = await (clients[lane] as Lane).attempt(request)
        target.alive()
        sent++
        longestMs = Math.max(longestMs, tookMs)
        tally.set(kind, (tally.get(kind) ?? 0) + 1)
      },
      { lanes, numRuns: 50, more: () => sent < wanted || (!soaking && missing().length > 0) },
    )
    target.over()
    const tookS = (performance.now() - begunMs) / 1000
    t.comment(`${sent} requests, the longest ${Math.round(longestMs)} ms, ${tookS.toFixed(1)} s`)
    const often = [...tally].sort(([, a], [, b]) => b - a)
    t.comment(often.map(([what, times]) => `${what} ${times}×`).join(', '))
    t.same(target.faults(), [], 'the service found no fault of its own')
    if (!held) return
    const undecided = tally.get('503 service_unavailable') ?? 0
    if (soaking)
      t.ok(undecided <= sent / 1000, `${undecided} requests were not decided: a server was too slow`)
    t.same(missing(), [], 'every kind of answer was among them')
    recordFigure(t, 'request-fuzz', { requests: sent, unavailable: undecided, longestMs })
  },
)

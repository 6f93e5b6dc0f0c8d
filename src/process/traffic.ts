/** The responses of the public listener: by status, and how long they took by route. */
import { Counter as PromCounter, type Registry } from 'prom-client'
import { errorTable } from '../../schemas/error-table.ts'
import type { Traffic } from '../stores.ts'
import { createHistograms, type Histogram, secondsBounds } from './histogram.ts'

/** A change takes up to a minute if an instance may trust an old copy for that long. */
export const latencyBoundsS = [...secondsBounds, 2.5, 5, 10, 60]

/** Their samples are there from the start: Prometheus sees no increase where a sample begins. */
const usual = new Set([200, 201, ...Object.values(errorTable).map(({ status }) => status)])

/** All paths that match no route. */
const noRoute = 'none'

export function createTraffic(registry: Registry) {
  const registers = [registry]
  const answers = new Array<number>(600).fill(0)
  new PromCounter({
    name: 'latchkey_requests_total',
    help: 'Answers of the public listener, by status.',
    labelNames: ['status'],
    registers,
    collect() {
      this.reset()
      answers.forEach((count, status) => {
        if (count > 0 || usual.has(status)) this.inc({ status }, count)
      })
    },
  })
  new PromCounter({
    name: 'latchkey_rate_limited_total',
    help: 'Requests refused because their key was over its limit.',
    registers,
    collect() {
      this.reset()
      this.inc(answers[429]!)
    },
  })
  const latencies = createHistograms(registry, {
    name: 'latchkey_request_duration_seconds',
    help: 'Time from the headers of a request to those of its response, by route and class of status.',
    bounds: latencyBoundsS,
  })
  const latencyOf = new Map<string, Histogram[]>()

  /** A series begins with its first response: most routes never answer most classes. */
  function latency(route: string, statusDigit: number): Histogram {
    let ofRoute = latencyOf.get(route)
    if (ofRoute === undefined) {
      ofRoute = []
      latencyOf.set(route, ofRoute)
    }
    ofRoute[statusDigit] ??= latencies.series({ route, status: `${statusDigit}xx` })
    return ofRoute[statusDigit]
  }

  return {
    answered(status: number, route = noRoute, seconds?: number) {
      answers[status]!++
      if (seconds !== undefined) latency(route, Math.floor(status / 100)).observe(seconds)
    },
    traffic: (): Traffic => ({
      monoS: performance.now() / 1000,
      answers: [0, 1, 2, 3, 4, 5].map((digit) =>
        answers.slice(digit * 100, digit * 100 + 100).reduce((sum, count) => sum + count, 0),
      ),
      rateLimited: answers[429]!,
      refused: answers[401]!,
      latencies: latencies.total(),
    }),
  }
}

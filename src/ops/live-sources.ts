/** What the dashboard shows: each source is one of its events. */
import { quantile } from '../process/histogram.ts'
import type { Service } from '../process/service.ts'
import { latencyBoundsS } from '../process/traffic.ts'
import { countersBody } from './admin/counters-body.ts'
import { instancesBody } from './admin/instances.ts'
import type { Board, WhichMinute } from './board.ts'
import type { Fleet, FleetView } from './fleet.ts'
import { createRefusalHour } from './refusal-hour.ts'

export interface LiveSourcesOptions {
  service: Pick<Service, 'stores' | 'health'>
  board: Board
  fleet: Fleet
}

/** All viewers together wait for Postgres in one queue. */
const lane = 'operator:dashboard'
const keysShown = 10

export function liveSources({ service, board, fleet }: LiveSourcesOptions) {
  /** The reading of this second, which feeds two events. */
  let reading: Promise<FleetView>

  async function busiest(minute: WhichMinute) {
    const view = await board.read(minute, lane)
    const { keys, ...about } = countersBody(view, 'used', keysShown)
    return { ...about, used: keys, share: countersBody(view, 'share', keysShown).keys }
  }

  return {
    // First, because sources are read in this order, and `instances` needs its reading.
    async traffic() {
      reading = fleet.read(lane)
      return trafficBody(await reading)
    },
    instances: async () => instancesBody(await reading),
    refusals: createRefusalHour(service.stores.audit),
    servers: service.health,
    counters: () => busiest('current'),
    last_minute: () => busiest('last'),
  }
}

/** Null until two reports of an instance have been read. */
function trafficBody({ rates, ratesComplete }: FleetView) {
  const { answers, refused, rateLimited, latencies } = rates
  if (answers.length === 0) return null
  const ms = (q: number) => {
    const seconds = quantile(q, latencyBoundsS, latencies)
    return seconds === null ? null : rounded(seconds * 1000)
  }
  return {
    at: Date.now() / 1000,
    complete: ratesComplete,
    requests: rounded(answers.reduce((sum, perS) => sum + perS, 0)),
    refused: rounded(refused),
    limited: rounded(rateLimited),
    errors: rounded(answers[5]!),
    p50_ms: ms(0.5),
    p99_ms: ms(0.99),
  }
}

const rounded = (value: number) => Math.round(value * 100) / 100

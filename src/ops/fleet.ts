/**
 * All instances, and what they answered in the last second or two, as the difference of two
 * reports of each. This instance is asked itself; without Postgres, it is the only one.
 */
import {
  type Instance,
  type InstanceReport,
  type InstanceStore,
  type Operator,
  type Traffic,
  Unavailable,
} from '../stores.ts'

export interface Fleet {
  read(lane: Operator): Promise<FleetView>
}

export interface FleetView {
  /** Whether Postgres answered. If not, only this instance is here. */
  complete: boolean
  instances: (Instance & { isAlive: boolean })[]
  /** Per second, over all instances that have just reported. Two reads, a second apart, are needed. */
  rates: FleetRates
  /** Whether they are of all these instances: not while Postgres is down, and not at once after it. */
  ratesComplete: boolean
}

export interface FleetRates extends Omit<Traffic, 'monoS'> {
  /** How many responses there were in each bucket of `Traffic.latencies`: not per second. */
  latencies: number[]
}

export interface FleetOptions {
  instances: Pick<InstanceStore, 'list'>
  /** This instance, now. */
  own: () => InstanceReport
}

/** An instance that has not reported for this long counts as not alive. */
const silentAfterS = 5
/** Reports come once a second. After a longer silence, the traffic probably goes to other instances. */
const ratesForS = 2.5
/** Reports further apart say nothing about the last second, and closer ones too little. */
const apartMaxS = 10
const apartMinS = 0.5

/** Of one instance. `base` becomes `earlier` once the latest report is long enough after it. */
interface Reports {
  earlier: Instance | null
  base: Instance
  latest: Instance
}

export function createFleet({ instances, own }: FleetOptions): Fleet {
  let known = new Map<string, Reports>()

  /** Keeps the last report and the one before it, if that is recent. */
  function remember(listed: Instance[]) {
    const reports = listed.map((latest): [string, Reports] => {
      const { earlier, base } = known.get(latest.id) ?? { earlier: null, base: latest }
      const apartS = secondsBetween(base, latest)
      if (apartS >= 0 && apartS < apartMinS) return [latest.id, { earlier, base, latest }]
      const isRecent = apartS > 0 && apartS < apartMaxS
      return [latest.id, { earlier: isRecent ? base : null, base: latest, latest }]
    })
    known = new Map(reports)
  }

  return {
    async read(lane) {
      const listed = await instances.list(lane).catch((error) => {
        if (!(error instanceof Unavailable)) throw error
        return null
      })
      const report = own()
      remember(withOwn(listed ?? [], report))
      const isOwn = ({ id }: Instance) => id === report.id
      const all = [...known.values()]
      const recent = all.filter(({ latest }) => isOwn(latest) || latest.silentS <= ratesForS)
      return {
        complete: listed !== null,
        instances: all.map(({ latest }) => ({ ...latest, isAlive: isOwn(latest) || isAlive(latest) })),
        rates: ratesOf(recent),
        ratesComplete: listed !== null && recent.every(({ earlier }) => earlier !== null),
      }
    },
  }
}

export const isAlive = ({ silentS }: Instance) => silentS <= silentAfterS

/** Its own state, as of now: what Postgres has of it may be old. */
function withOwn(listed: Instance[], { uptimeS, ...report }: InstanceReport): Instance[] {
  // Unlike Date.now, it never goes back.
  const nowS = (performance.timeOrigin + performance.now()) / 1000
  const reported = listed.find(({ id }) => id === report.id)
  const { startedAt, seenAt, silentS } = reported ?? { startedAt: nowS - uptimeS, seenAt: nowS, silentS: 0 }
  const own = { ...report, startedAt, seenAt, silentS }
  return [...listed.filter(({ id }) => id !== own.id), own].sort((a, b) => a.startedAt - b.startedAt)
}

/** By the clock of the instance: a report may take long to reach Postgres. */
const secondsBetween = (earlier: Instance, later: Instance) => later.traffic.monoS - earlier.traffic.monoS

function ratesOf(all: Reports[]): FleetRates {
  const rates: FleetRates = { answers: [], rateLimited: 0, refused: 0, latencies: [] }
  for (const { earlier, latest } of all) {
    if (earlier === null) continue
    const seconds = secondsBetween(earlier, latest)
    const grown = (of: (traffic: Traffic) => number) => of(latest.traffic) - of(earlier.traffic)
    rates.rateLimited += grown(({ rateLimited }) => rateLimited) / seconds
    rates.refused += grown(({ refused }) => refused) / seconds
    for (const name of ['answers', 'latencies'] as const) {
      const per = name === 'answers' ? seconds : 1
      latest.traffic[name].forEach((_, i) => {
        rates[name][i] = (rates[name][i] ?? 0) + grown((traffic) => traffic[name][i] ?? 0) / per
      })
    }
  }
  return rates
}

/** What must have come of each kind of request over the course of a fault of Postgres. */
import type { Test } from 'tap'
import { type Sample, statuses } from '../load.ts'
import { scaled } from '../soak.ts'
import { type Kind, normal } from './postgres-world.ts'

/**
 * goes on: as if nothing were wrong, from the first to the last. stops: 503 from the fault to its end. falters: either.
 * Never anything else, for any of them.
 */
export type Fate = 'goes on' | 'stops' | 'falters'

export interface Course {
  awayMs: number
  returningMs: number
  backMs: number
  busyMs: number
}

/** From the request to its 503, or to whatever else is answered. */
export const answeredMs = 1500
/** Of what goes on. */
const undisturbedMs = 500
export const recoveredMs = 2000
/** What a machine that is busy with other things may add, by what it adds to a page that needs no server. */
const busyMaxMs = scaled(Number.POSITIVE_INFINITY, 1000)

/** How much later than it should this machine answers. */
export const busyness = (pages: Sample[]) => Math.min(slowest(pages), busyMaxMs)
const slowest = (samples: Sample[]) => Math.max(...samples.map(({ tookMs }) => tookMs))
const answeredAt = ({ sentMs, tookMs }: Sample) => sentMs + tookMs

export const during =
  ({ awayMs, returningMs }: Course) =>
  (sample: Sample) =>
    sample.sentMs >= awayMs && answeredAt(sample) <= returningMs

/** How long after the fault it was answered as usual for the first time. */
export function judge(t: Test, kind: Kind, samples: Sample[], fate: Fate, course: Course): number {
  const { backMs, busyMs } = course
  const well = normal[kind]
  const isWell = ({ status }: Sample) => status === well
  const unavailable = samples.filter(({ status }) => status === 503)
  t.strictSame(
    statuses(samples.filter((one) => !isWell(one) && one.status !== 503)),
    {},
    `${kind}: nothing but ${well}${fate === 'goes on' ? '' : ' and 503'}`,
  )
  t.strictSame(
    unavailable.filter(({ headers }) => !(Number(headers['retry-after']) >= 1)),
    [],
    `${kind}: each 503 says when to come back`,
  )
  const slowestMs = slowest(samples)
  t.ok(
    slowestMs <= busyMs + (fate === 'goes on' ? undisturbedMs : answeredMs),
    `${kind}: the slowest answer after ${ms(slowestMs)}, the machine's share ${ms(busyMs)}`,
  )

  const meanwhile = samples.filter(during(course))
  t.ok(meanwhile.length > 0, `${kind}: was asked for meanwhile`)
  if (fate === 'goes on') t.equal(unavailable.length, 0, `${kind}: goes on throughout`)
  if (fate === 'stops') {
    t.strictSame(statuses(meanwhile), { 503: meanwhile.length }, `${kind}: not decided meanwhile`)
  }

  const first = samples.filter((one) => isWell(one) && answeredAt(one) >= backMs).map(answeredAt)
  const recoveryMs = Math.min(...first) - backMs
  t.ok(recoveryMs <= recoveredMs + busyMs, `${kind}: there again after ${ms(recoveryMs)}`)
  const later = samples.filter(({ sentMs }) => sentMs >= backMs + recoveredMs)
  t.ok(later.length > 0 && later.every(isWell), `${kind}: and as usual from then on`)
  return recoveryMs
}

export const ms = (value: number) => `${Math.round(value)} ms`

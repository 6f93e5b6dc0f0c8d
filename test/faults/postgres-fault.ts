/** One fault of Postgres under load, from before it to after it. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { type Load, quantile, type Sample } from '../load.ts'
import { until } from '../process/until.ts'
import { busyness, type Course, during, type Fate, judge, ms, recoveredMs } from './postgres-judge.ts'
import { type Kind, kinds, normal, perSecond, type World } from './postgres-world.ts'

export interface Fault {
  away(): Promise<unknown>
  back(): Promise<unknown>
  /** How long it lasts. */
  forMs: number
  fates: Record<Kind, Fate>
  /** Again from the beginning, up to so many times in all, where this machine stood still meanwhile. Once by default. */
  attempts?: number
}

export interface Outcome {
  /** How long the keys in use that were served waited, while it lasted. */
  cachedMs: number[]
  /** How long the 503s took. */
  unavailableMs: number[]
  /** Answered neither as usual nor 503. */
  wrong: number
  /** From the end of the fault to the first normal answer of the kind for which that took longest. */
  recoveryMs: number
  samples: Record<Kind, Sample[]>
}

export const everything: Record<Kind, Fate> = {
  cached: 'goes on',
  listing: 'goes on',
  writing: 'goes on',
  unknown: 'goes on',
  fresh: 'goes on',
  page: 'goes on',
}

/** What a Postgres that is away leaves. */
export const onlyCached: Record<Kind, Fate> = {
  ...everything,
  listing: 'stops',
  writing: 'stops',
  unknown: 'stops',
  fresh: 'stops',
}

/** For what comes before and after the fault. */
const spareS = 8
const secondsOf = ({ forMs }: Fault) => forMs / 1000 + spareS
/** Beyond the time for recovering, for seeing that it stays well. */
const afterMs = 300

/** A page that needs no server was waited for this long: so was everything else, whatever became of Postgres. */
const stallMs = 300

export async function underLoad(t: Test, world: World, fault: Fault): Promise<Outcome> {
  for (let left = fault.attempts ?? 1; ; left--) {
    const { samples, course } = await suffer(t, world, fault)
    if (course.busyMs < stallMs || left === 1) return outcomeOf(t, samples, course, fault)
    t.comment(`this machine stood still for ${ms(course.busyMs)}: once more`)
  }
}

async function suffer(t: Test, world: World, fault: Fault) {
  const loads = await world.startLoads(t, secondsOf(fault))
  await until('each kind is answered as usual', () =>
    kinds.every((kind) => loads[kind].samples.filter(({ status }) => status === normal[kind]).length > 2),
  )
  await fault.away()
  const awayMs = performance.now()
  await pause(fault.forMs)
  const returningMs = performance.now()
  await fault.back()
  const backMs = performance.now()
  await pause(recoveredMs + afterMs)
  const samples = await stopped(loads)
  return { samples, course: { awayMs, returningMs, backMs, busyMs: busyness(samples.page) } }
}

function outcomeOf(t: Test, samples: Record<Kind, Sample[]>, course: Course, fault: Fault): Outcome {
  const freshSent = samples.fresh.filter(({ sentMs }) => sentMs < course.returningMs).length
  t.ok(freshSent <= secondsOf(fault) * perSecond.fresh, 'there were new keys for as long as it lasted')
  const recoveries = kinds.map((kind) => judge(t, kind, samples[kind], fault.fates[kind], course))
  const all = kinds.flatMap((kind) => samples[kind])
  return {
    cachedMs: samples.cached
      .filter(during(course))
      .filter(({ status }) => status === normal.cached)
      .map(({ tookMs }) => tookMs),
    unavailableMs: all.filter(({ status }) => status === 503).map(({ tookMs }) => tookMs),
    wrong: kinds.flatMap((kind) =>
      samples[kind].filter(({ status }) => ![normal[kind], 503].includes(status)),
    ).length,
    recoveryMs: Math.max(...recoveries),
    samples,
  }
}

async function stopped(loads: Record<Kind, Load>): Promise<Record<Kind, Sample[]>> {
  const entries = await Promise.all(kinds.map(async (kind) => [kind, await loads[kind].stop()] as const))
  return Object.fromEntries(entries) as Record<Kind, Sample[]>
}

/** For the table of docs/reliability.md. */
export function numbersOf(outcomes: readonly Outcome[]) {
  const cached = outcomes.flatMap(({ cachedMs }) => cachedMs)
  const unavailable = outcomes.flatMap(({ unavailableMs }) => unavailableMs)
  return {
    rounds: outcomes.length,
    cached: cached.length,
    p99Ms: quantile(cached, 0.99),
    unavailable: unavailable.length,
    slowestMs: Math.max(0, ...unavailable),
    wrong: outcomes.reduce((sum, { wrong }) => sum + wrong, 0),
    backMs: Math.max(...outcomes.map(({ recoveryMs }) => recoveryMs)),
  }
}

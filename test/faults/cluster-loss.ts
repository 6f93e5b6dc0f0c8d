// What holds while a node of the cluster is lost, whatever becomes of it.
import type { Test } from 'tap'
import { failedOf, p99, type Sample } from '../load.ts'
import { type Answered, stepsBack, tally, wrongAnswers } from './answers.ts'
import { type ClusterFleet, inTurn, startTraffic, type Traffic } from './cluster.ts'
import { type FleetKey, makeKeys, plenty } from './fleet.ts'

/** `own`: keys of the node that is lost. */
const roles = ['own', 'ownLimited', 'other', 'otherLimited'] as const
type Role = (typeof roles)[number]
type Answers = Record<Role, (Sample & Answered)[]>

const smallLimit = 50
const limits: Record<Role, number> = {
  own: plenty,
  ownLimited: smallLimit,
  other: plenty,
  otherLimited: smallLimit,
}
/**
 * From a fault until this much later its p99 may be this much above that of requests that need no
 * server.
 */
export const switchMs = 1000
const switchP99MsMax = 250
const backMsMax = 2000

export interface Prepared {
  keys: Record<Role, FleetKey>
  /** One of the node's own that has no load on it. */
  quiet: FleetKey
  traffic: Traffic<Role>
  /**
   * For a key of the node that has used up its minute on every instance: what is admitted in that
   * minute all the same.
   */
  admittedBeyond(): Promise<number>
}

/** `share`: which third of the slots the node has. */
export async function prepareLoss(t: Test, fleet: ClusterFleet, share: number): Promise<Prepared> {
  const isOwn = (slot: number) => Math.floor((slot * 3) / 16_384) === share
  const make = async (own: boolean, rateLimitRpm: number) =>
    (await makeKeys(fleet, 1, { where: (slot) => isOwn(slot) === own, rateLimitRpm }))[0]!
  const keys = {} as Record<Role, FleetKey>
  for (const role of roles) keys[role] = await make(role.startsWith('own'), limits[role])
  const [quiet, spent] = [await make(true, plenty), await make(true, 3)]
  const traffic = startTraffic(t, fleet, keys)
  await traffic.more(20)
  const { resetS } = (await inTurn(fleet, spent, 9)).at(-1)!
  async function admittedBeyond() {
    const answers = await inTurn(fleet, spent, 6)
    return answers.filter((answer) => answer.resetS === resetS && answer.status !== 429).length
  }
  return { keys, quiet, traffic, admittedBeyond }
}

export interface Loss {
  answers: Answers
  /** Of requests that need neither Redis nor Postgres. */
  idle: Sample[]
  /** When the node was lost, performance.now(). */
  beganMs: number
  /** From the cluster being ok until all count in Redis. */
  backMs: number
  admittedBeyond: number
}

export function expectServed(t: Test, { answers, idle, beganMs, backMs, admittedBeyond }: Loss) {
  for (const role of roles) {
    const faults = [...wrongAnswers(answers[role], limits[role]), ...stepsBack(answers[role], limits[role])]
    t.strictSame(tally(faults), {}, `${role}: every answer is right, and no instance goes back in its count`)
  }
  const refused = [...answers.own, ...answers.other].filter(({ status }) => status === 429)
  t.equal(refused.length, 0, 'no key is refused far below its limit')
  t.equal(admittedBeyond, 0, 'a key that has used up its minute stays refused')
  t.ok(backMs <= backMsMax, `shared ${Math.round(backMs)} ms after the cluster was ok`)

  const isSwitching = (one: Sample) => one.sentMs > beganMs - 100 && one.sentMs < beganMs + switchMs
  const switchP99 = (...samples: Sample[][]) => p99(samples.flat().filter(isSwitching))
  const idleP99Ms = switchP99(idle)
  const otherP99Ms = switchP99(answers.other, answers.otherLimited)
  const ownP99Ms = switchP99(answers.own, answers.ownLimited)
  const shown = `p99 ${Math.round(otherP99Ms)} ms of other keys, ${Math.round(ownP99Ms)} of its own, ${Math.round(idleP99Ms)} idle`
  t.ok(Math.max(otherP99Ms, ownP99Ms) <= idleP99Ms + switchP99MsMax, shown)
  const all = Object.values(answers).flat()
  return { requests: all.length, failed: failedOf(all), otherP99Ms, ownP99Ms, idleP99Ms, backMs }
}

/** For docs/reliability.md, of several losses. */
export function figuresOf(losses: readonly ReturnType<typeof expectServed>[]) {
  type Name = keyof (typeof losses)[number]
  const worst = (name: Name) => Math.max(...losses.map((one) => one[name]))
  const sum = (name: Name) => losses.reduce((total, one) => total + one[name], 0)
  return {
    ...{ rounds: losses.length, requests: sum('requests'), failed: sum('failed') },
    ...{ otherP99Ms: worst('otherP99Ms'), ownP99Ms: worst('ownP99Ms') },
    ...{ idleP99Ms: worst('idleP99Ms'), backMs: worst('backMs') },
  }
}

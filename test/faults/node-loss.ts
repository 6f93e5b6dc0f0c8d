// What holds of the answers while a node of the cluster is lost, whatever becomes of it.
import type { Test } from 'tap'
import { failedOf } from '../load.ts'
import { type Fleet, type FleetKey, makeKeys } from './cluster-fleet.ts'
import {
  type Answered,
  inTurn,
  mostAdmitted,
  startTraffic,
  switchP99,
  switchP99MsMax,
  type Traffic,
  toldTwice,
} from './cluster-traffic.ts'
import { type Counted, faultsOf } from './windows.ts'

/** `own`: keys of the node that is lost. */
export type Role = 'own' | 'ownLimited' | 'other' | 'otherLimited'

export interface LossKeys extends Record<Role, FleetKey> {
  /** One of the node's own that has no load on it. */
  quiet: FleetKey
}

export const smallLimit = 50
const unlimited = 1_000_000

/** `share`: of the three shares of slots, the one that the node has. */
export async function makeLossKeys(fleet: Fleet, share: number): Promise<LossKeys> {
  const here = (slot: number) => Math.floor((slot * 3) / 16_384) === share
  const elsewhere = (slot: number) => !here(slot)
  const one = async (where: typeof here, rateLimitRpm: number) =>
    (await makeKeys(fleet, 1, { where, rateLimitRpm }))[0]!
  return {
    own: await one(here, unlimited),
    ownLimited: await one(here, smallLimit),
    other: await one(elsewhere, unlimited),
    otherLimited: await one(elsewhere, smallLimit),
    quiet: await one(here, unlimited),
  }
}

export function startLossTraffic(t: Test, fleet: Fleet, keys: LossKeys): Traffic<Role> {
  const { own, ownLimited, other, otherLimited } = keys
  return startTraffic(t, fleet, { own, ownLimited, other, otherLimited })
}

/** Uses up a key's minute on every instance; the function gives what was admitted in that minute all the same. */
export async function spendAll(fleet: Fleet, share: number): Promise<() => Promise<Counted[]>> {
  const where = (slot: number) => Math.floor((slot * 3) / 16_384) === share
  const [key] = await makeKeys(fleet, 1, { where, rateLimitRpm: 3 })
  const { resetS } = (await inTurn(fleet, key!, 9)).at(-1)!
  return async () =>
    (await inTurn(fleet, key!, 6)).filter((answer) => answer.resetS === resetS && answer.status !== 429)
}

export function expectServed(t: Test, answers: Record<Role, Answered[]>): void {
  const { own, ownLimited, other, otherLimited } = answers
  t.strictSame(faultsOf([...own, ...other], [unlimited]), {}, 'every request is admitted, with its headers')
  t.strictSame(
    faultsOf([...ownLimited, ...otherLimited], [smallLimit]),
    {},
    'and 200 or 429 by a small limit',
  )
  t.strictSame([...toldTwice(own), ...toldTwice(other)], [], 'no instance gives a number twice')
  const most = Math.max(mostAdmitted(ownLimited), mostAdmitted(otherLimited))
  t.ok(most <= smallLimit, `each instance keeps to the limit: ${most}`)
}

export interface SwitchP99 {
  own: number
  other: number
  /** Of requests that need neither Redis nor Postgres. */
  idle: number
}

export function expectSwift(
  t: Test,
  answers: Record<Role, Answered[]>,
  faultMs: number,
  idle: number,
): SwitchP99 {
  const own = switchP99([...answers.own, ...answers.ownLimited], faultMs)
  const other = switchP99([...answers.other, ...answers.otherLimited], faultMs)
  for (const [whose, p99] of Object.entries({ 'other nodes': other, 'lost node': own })) {
    // Less what a busy machine takes from any request.
    t.ok(
      p99 - idle <= switchP99MsMax,
      `p99 of the ${whose} keys ${Math.round(p99)} ms, idle ${Math.round(idle)} ms`,
    )
  }
  return { own, other, idle }
}

export interface Loss extends SwitchP99 {
  back: number
  requests: number
  failed: number
}

export function lossOf(answers: Record<Role, Answered[]>, p99: SwitchP99, back: number): Loss {
  const all = Object.values(answers).flat()
  return { ...p99, back, requests: all.length, failed: failedOf(all) }
}

/** Of several losses. */
export function numbersOf(losses: readonly Loss[]) {
  const worst = (what: 'own' | 'other' | 'idle' | 'back') => Math.max(...losses.map((one) => one[what]))
  const sum = (what: 'requests' | 'failed') => losses.reduce((total, one) => total + one[what], 0)
  return {
    rounds: losses.length,
    requests: sum('requests'),
    failed: sum('failed'),
    otherP99Ms: worst('other'),
    ownP99Ms: worst('own'),
    idleP99Ms: worst('idle'),
    backMs: worst('back'),
  }
}

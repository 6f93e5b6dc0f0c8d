/** One round: load on two instances, Redis fails at a random moment and comes back, and what came of it all. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { type Sample, startLoad } from '../load.ts'
import type { Chance } from './chance.ts'
import { answeredMs, faultsOf, resetOf, stepsBack } from './redis-answers.ts'
import { countsInRedis, notExact, notShared, spend, spentLimit } from './redis-counting.ts'
import type { Fault } from './redis-faults.ts'
import { type Fleet, type FleetKey, keysOf, untilDegraded } from './redis-fleet.ts'

export interface Round {
  samples: Sample[]
  /** Those under way at the fault or in the second after it, or in the second after Redis was there again. */
  switching: Sample[]
  /** Of probes that need neither Redis nor Postgres, sent at the same time. */
  meanwhile: Sample[]
  /** From Redis being there again until every instance counts in it again. */
  backMs: number
  /** From the fault to that, Date.now(). */
  from: number
  to: number
  /** Refusals, between the fault and its end, of a key that had used its minute up before. */
  keptRefused: number
  /** Refusals after the fault of a key that still had calls left at it. */
  usedUp: number
  faults: string[]
}

const switchMs = 1000
const plenty = 1_000_000
const smallLimit = 30

export async function runRound(t: Test, fleet: Fleet, fault: Fault, chance: Chance): Promise<Round> {
  const { instances, urls, makeKey } = fleet
  const busy = [await makeKey(plenty), await makeKey(plenty), await makeKey(plenty)]
  // Each goes to one instance only, so its count in Redis grows by that one alone.
  const own = await Promise.all(instances.map(() => makeKey(plenty)))
  const small = await makeKey(smallLimit)
  const { key: spent, reset: spentReset } = await spend(fleet)

  const load = (keys: FleetKey[], perSecond: number) =>
    startLoad(t, { urls, tokens: keys.map(({ token }) => token), perSecond })
  const loads = [load(busy, 150), load(own, 50), load([small], 50), load([spent], 20)]
  const opsUrls = instances.map(({ opsUrl }) => opsUrl)
  const probes = startLoad(t, { urls: opsUrls, tokens: ['none'], path: '/healthz', perSecond: 50 })
  await chance.pause(150, 500)

  const away = fault.takesAwayFrom(fleet)
  const from = Date.now()
  const struckMs = performance.now()
  await fault.strike(fleet)
  if (fault.heal) {
    await Promise.all(away.map((instance) => untilDegraded(instance, 1)))
    await chance.pause(0, 1200)
    await fault.heal(fleet)
  }
  const thereMs = performance.now()
  const backAtMs = await Promise.all(instances.map((one, i) => countsInRedis(fleet, one, own[i]!)))
  const to = Date.now()
  await pause(thereMs + switchMs - performance.now())

  const answers = await Promise.all(loads.map((one) => one.stop()))
  const [ofBusy, ofOwn, ofSmall, ofSpent] = answers as [Sample[], Sample[], Sample[], Sample[]]
  const samples = answers.flat()
  const afterFault = (sample: Sample) => answeredMs(sample) >= struckMs
  const isSwitching = (one: Sample) =>
    (afterFault(one) && one.sentMs <= struckMs + switchMs) ||
    (answeredMs(one) >= thereMs && one.sentMs <= thereMs + switchMs)
  const sameMinute = ofSpent.filter((sample) => resetOf(sample) === spentReset)
  const { names, lasting } = await keysOf(fleet)
  const inexact: string[] = []
  if (fault.keepsCounts) {
    // Of the instances that had Redis all the time.
    for (const [i, key] of own.entries())
      if (!away.includes(instances[i]!))
        inexact.push(...(await notExact(fleet, key, ofKey(ofOwn, key.id), plenty)))
    if (away.length === 0) inexact.push(...(await notExact(fleet, small, ofSmall, smallLimit)))
  }

  return {
    samples,
    switching: samples.filter(isSwitching),
    meanwhile: (await probes.stop()).filter(isSwitching),
    backMs: Math.max(...backAtMs) - thereMs,
    from,
    to,
    keptRefused: sameMinute.filter((one) => afterFault(one) && one.sentMs < thereMs && one.status === 429)
      .length,
    usedUp: ofSmall.filter((one) => afterFault(one) && one.status === 429).length,
    faults: [
      ...faultsOf([...ofBusy, ...ofOwn], plenty),
      ...faultsOf(ofSmall, smallLimit),
      ...faultsOf(ofSpent, spentLimit),
      ...[...ofBusy, ...ofOwn].flatMap(({ status }) => (status === 429 ? 'refused far below its limit' : [])),
      ...busy.flatMap(({ id }) => stepsBack(ofKey(ofBusy, id), plenty)),
      ...own.flatMap(({ id }) => stepsBack(ofKey(ofOwn, id), plenty)),
      ...stepsBack(ofSmall, smallLimit),
      ...stepsBack(ofSpent, spentLimit),
      ...sameMinute.flatMap(({ status }) => (status === 200 ? 'admitted in the minute it had used up' : [])),
      ...(await notShared(fleet)),
      ...inexact,
      ...(names.length > 0 ? lasting.map((name) => `${name} without an end`) : ['nothing in Redis']),
    ],
  }
}

const ofKey = (samples: Sample[], id: string) => samples.filter(({ headers }) => headers['x-key-id'] === id)

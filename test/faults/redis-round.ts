// Rounds of one fault of Redis: load on two instances, Redis fails at a random moment and comes
// back, and what came of it all.
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import type { Row } from '../figures.ts'
import { failedOf, p99, type Sample, startLoad } from '../load.ts'
import type { Serving } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import {
  type Answered,
  answeredMs,
  answeredOf,
  countedOf,
  inexact,
  stepsBack,
  tally,
  wrongAnswers,
} from './answers.ts'
import { type Chance, chanceOf } from './chance.ts'
import {
  everyCounterExpires,
  type FleetKey,
  makeKeys,
  plenty,
  untilDegraded,
  untilShared,
  verify,
} from './fleet.ts'
import { type Fault, type RedisFleet, startRedisFleet } from './redis-faults.ts'

type RedisRow = Exclude<Extract<Row, `redis-${string}`>, 'redis-changes'>

const switchP99MsMax = 250
const backMsMax = 2000
/**
 * The switch is the fault and this long after it, and the return of Redis and this long after that.
 */
const switchMs = 1000
const smallLimit = 30
const spentLimit = 4

interface Round {
  samples: Sample[]
  /** Those that were under way during the switch, */
  switching: Sample[]
  /** and probes at the same time that need neither Redis nor Postgres. */
  probes: Sample[]
  /** From the return of Redis until every instance counts in it again. */
  backMs: number
  /** From the fault to that, Date.now(). */
  from: number
  to: number
  /** Refusals, during the fault, of a key that had used up its minute before. */
  stillRefused: number
  /** Refusals after the fault of a key that had requests left when it began. */
  usedUp: number
}

/** For each row a test: its fault strikes the same instances again and again. */
export function underFaults(
  t: Test,
  networks: number,
  rows: readonly [RedisRow, name: string, fault: Fault][],
): void {
  const chance = chanceOf(t)
  for (const [row, name, fault] of rows) {
    t.test(name, async (t) => {
      const fleet = await startRedisFleet(t, { networks })
      if (fleet !== null) await repeat(t, fleet, fault, chance, row)
    })
  }
}

async function repeat(t: Test, fleet: RedisFleet, fault: Fault, chance: Chance, row: RedisRow) {
  const rounds: Round[] = []
  for (let n = 0; n < scaled(1, 20); n++) rounds.push(await runRound(t, fleet, fault, chance))
  const sum = (of: (round: Round) => number) => rounds.reduce((total, round) => total + of(round), 0)
  if (fault.end)
    t.ok(sum(({ stillRefused }) => stillRefused) > 0, 'a key used up was asked for during the fault')
  t.ok(sum(({ usedUp }) => usedUp) > 0, 'a key was used up by the count that went on')

  const p99Ms = p99(rounds.flatMap(({ switching }) => switching))
  // A short run shares its processors with other tests, which make even a probe wait.
  const probeMs = p99(rounds.flatMap(({ probes }) => probes))
  const shownMs = `p99 during the switch ${Math.round(p99Ms)} ms, of probes ${Math.round(probeMs)} ms`
  t.ok(p99Ms <= switchP99MsMax + (soaking ? 0 : probeMs), shownMs)
  const backMs = Math.max(...rounds.map((round) => round.backMs))
  t.ok(backMs <= backMsMax, `counting in Redis again after ${Math.round(backMs)} ms`)
  expectLines(t, fleet, fault, rounds)

  const requests = rounds.flatMap(({ samples }) => samples)
  recordFigure(t, row, {
    ...{ rounds: rounds.length, requests: requests.length, failed: failedOf(requests) },
    ...{ p99Ms, worstMs: Math.max(...rounds.map(({ switching }) => p99(switching))), backMs },
  })
}

/**
 * One line says that Redis is down, and one that it is back, of each instance that it concerns, and
 * no others.
 */
function expectLines(t: Test, fleet: RedisFleet, fault: Fault, rounds: readonly Round[]): void {
  const affected = fault.affects(fleet)
  for (const [i, instance] of fleet.instances.entries()) {
    const lines = instance.log.flatMap(({ msg, time }) => {
      const what = /^(Redis is down|counting in Redis again)/.exec(String(msg))?.[1]
      return what ? [{ what, at: Date.parse(String(time)) }] : []
    })
    const expected = affected.includes(instance) ? ['Redis is down', 'counting in Redis again'] : []
    const logged = rounds.map(({ from, to }) =>
      lines.flatMap(({ what, at }) => (at >= from && at <= to ? what : [])),
    )
    t.strictSame(logged, Array(rounds.length).fill(expected), `instance ${i} logged it, once each way`)
    // In a short run beside others the test's own network may take the 100 ms that Redis is given.
    if (i < fleet.networks.length && !soaking) continue
    t.equal(lines.length, rounds.length * expected.length, `instance ${i} logged nothing more`)
  }
}

async function runRound(t: Test, fleet: RedisFleet, fault: Fault, chance: Chance): Promise<Round> {
  const { instances, urls } = fleet
  const busy = await makeKeys(fleet, 3)
  // Each is used on one instance only, so its count in Redis grows by that one alone.
  const own = await makeKeys(fleet, instances.length)
  const small = (await makeKeys(fleet, 1, { rateLimitRpm: smallLimit }))[0]!
  const spent = await useUp(fleet)
  const load = (keys: FleetKey[], perSecond: number) =>
    startLoad(t, { urls, tokens: keys.map(({ token }) => token), perSecond })
  const loads = [load(busy, 150), load(own, 50), load([small], 50), load([spent.key], 20)]
  const opsUrls = instances.map(({ opsUrl }) => opsUrl)
  const probing = startLoad(t, { urls: opsUrls, tokens: ['none'], path: '/healthz', perSecond: 50 })
  await chance.pause(150, 500)

  const affected = fault.affects(fleet)
  const from = Date.now()
  const beganMs = performance.now()
  await fault.begin(fleet)
  if (fault.end) {
    await Promise.all(affected.map(untilDegraded))
    await chance.pause(0, 1200)
    await fault.end(fleet)
  }
  const endedMs = performance.now()
  const backAtMs = await Promise.all(instances.map((one, i) => countsInRedis(fleet, one, own[i]!)))
  const to = Date.now()
  await pause(endedMs + switchMs - performance.now())

  const samples = await Promise.all(loads.map((one) => one.stop()))
  const [ofBusy, ofOwn, ofSmall, ofSpent] = samples.map(answeredOf) as [Load, Load, Load, Load]
  const isAfter = (sample: Sample) => answeredMs(sample) >= beganMs
  const isSwitching = (one: Sample) =>
    (isAfter(one) && one.sentMs <= beganMs + switchMs) ||
    (answeredMs(one) >= endedMs && one.sentMs <= endedMs + switchMs)
  const sameMinute = ofSpent.filter(({ resetS }) => resetS === spent.resetS)
  const faults = [
    ...wrongAnswers([...ofBusy, ...ofOwn], plenty),
    ...wrongAnswers(ofSmall, smallLimit),
    ...wrongAnswers(ofSpent, spentLimit),
    ...[...ofBusy, ...ofOwn].flatMap(({ status }) => (status === 429 ? 'refused far below its limit' : [])),
    ...busy.flatMap((key) => stepsBack(ofKey(ofBusy, key), plenty)),
    ...own.flatMap((key) => stepsBack(ofKey(ofOwn, key), plenty)),
    ...stepsBack(ofSmall, smallLimit),
    ...stepsBack(ofSpent, spentLimit),
    ...sameMinute.flatMap(({ status }) => (status === 200 ? 'admitted in the minute it had used up' : [])),
    ...(await notShared(fleet)),
  ]
  if (fault.losesNothing) {
    // The keys of the instances that had Redis all the time.
    for (const [i, key] of own.entries())
      if (!affected.includes(instances[i]!))
        faults.push(...(await inexact(fleet, key, ofKey(ofOwn, key), plenty)))
    if (affected.length === 0) faults.push(...(await inexact(fleet, small, ofSmall, smallLimit)))
  }
  t.strictSame(tally(faults), {}, `${samples.flat().length} answers without a fault`)
  await everyCounterExpires(t, fleet.redis)
  return {
    samples: samples.flat(),
    switching: samples.flat().filter(isSwitching),
    probes: (await probing.stop()).filter(isSwitching),
    ...{ backMs: Math.max(...backAtMs) - endedMs, from, to },
    stillRefused: sameMinute.filter((one) => isAfter(one) && one.sentMs < endedMs && one.status === 429)
      .length,
    usedUp: ofSmall.filter((one) => isAfter(one) && one.status === 429).length,
  }
}

type Load = (Sample & Answered)[]
const ofKey = (answers: Load, { id }: FleetKey) => answers.filter(({ headers }) => headers['x-key-id'] === id)

/** Uses a new key up: twice its limit in turn on all instances, within one minute. */
async function useUp({ urls, office }: RedisFleet) {
  for (;;) {
    const key = (await makeKeys({ office }, 1, { rateLimitRpm: spentLimit }))[0]!
    const answers = []
    for (let i = 0; i < 2 * spentLimit; i++)
      answers.push(countedOf(await verify(urls[i % urls.length]!, key.token)))
    const [resetS, ...others] = new Set(answers.map(({ resetS }) => resetS))
    if (others.length === 0) return { key, answers, resetS: resetS! }
  }
}

/** The instances share one count of a new key: all of them together admit it up to its limit. */
async function notShared(fleet: RedisFleet): Promise<string[]> {
  const { key, answers } = await useUp(fleet)
  return (await inexact(fleet, key, answers, spentLimit)).map((fault) => `afterwards ${fault}`)
}

/**
 * When the instance has said that it counts in Redis, and Redis has counted a request with its key
 * since.
 */
async function countsInRedis(
  { redis, countIn }: RedisFleet,
  instance: Serving,
  { id }: FleetKey,
): Promise<number> {
  const countedNow = async () => {
    const [seconds] = await redis.time()
    const resetS = (Math.floor(Number(seconds) / 60) + 1) * 60
    return { resetS, count: (await countIn(id, resetS)) ?? 0 }
  }
  await untilShared([instance])
  const before = await countedNow()
  await until('Redis counts its key', async () => {
    const { resetS, count } = await countedNow()
    return resetS > before.resetS ? count > 0 : count > before.count
  })
  return performance.now()
}

/** The instances and the servers of one run, and what went wrong in it. */
import { chanceOf } from './chance.ts'
import { type Counting, createCounting, type Run } from './counting.ts'
import { createInstance, hasher, type Instance, type World } from './instance.ts'
import { createPostgres } from './postgres.ts'
import { createServer } from './redis-server.ts'
import { instanceCount, keyCount, type Schedule } from './schedule.ts'
import { createProcess, createTime, startMs, type Time, type Trace, useTime } from './time.ts'

export const limitMax = 8
/** Clocks run at most 4 % apart (src/rules/clock-rates.ts). */
const rateOffMax = 0.0196
export const tokens = Array.from({ length: keyCount }, (_, i) => `lk_token${i}`)
export const idOf = (key: number) => `apk_${key}`
/** Postgres's clock. */
export const secondsAt = (nowMs: number) => (startMs + nowMs) / 1000
const microsAt = (nowMs: number) => Math.floor((startMs + nowMs) * 1000)

export interface Fleet extends World, Run, Counting {
  readonly instances: Instance[]
  /** What went wrong. */
  readonly wrong: string[]
  /** Of Redis's clock. */
  readonly redisRate: number
  /** For how long instances may have read what is behind, all together. */
  behindMs: number
  start(instance: number): void
  after(ms: number, run: () => void): void
}

let time: Time = createTime()
/** What nobody caught, in the run under way. */
let uncaught = (_: Error) => {}

/** Replaces the clocks and timers of this process, once. */
export function startSimulating(): void {
  useTime(() => time)
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => uncaught(error))
}

/** Starts the instances. `lines` takes a readable trace. */
export function createFleet(
  { seed, cacheTtlMs, outageTtlMs, silentMaxMs, clocksAgree, slow }: Schedule,
  lines?: string[],
): Fleet {
  const own = createTime()
  time = own
  const chance = chanceOf(seed ^ 0x5eed)
  const wrong: string[] = []
  const instances: Instance[] = []
  const trace: Trace = lines && ((line) => lines.push(`${own.nowMs.toFixed(1).padStart(8)}  ${line}`))
  const fail = (what: string) => {
    wrong.push(what)
    trace?.(`WRONG: ${what}`)
    own.stop()
  }
  uncaught = (error) => fail(`uncaught: ${error.stack}`)
  // A machine has the same rate after a restart. That of Redis may be as wrong as one of theirs.
  const offMax = clocksAgree ? 0 : rateOffMax
  const rates = Array.from({ length: instanceCount }, (_, i) =>
    slow === undefined ? chance.between(1 - offMax, 1 + offMax) : 1 + (i === slow ? -offMax : offMax),
  )
  const redisRate = slow === undefined ? chance.oneOf(rates) : rates[slow]!
  const redisMicrosAt = (nowMs: number) => microsAt(nowMs * redisRate)
  const redis = { master: createServer(() => redisMicrosAt(own.nowMs)) }
  const run: Run = { time, redis, pausedMs: 0, clockJumped: false, redisMicrosAt, fail }
  const fleet: Fleet = Object.assign(run, createCounting(run), {
    ...{ time: own, chance, redis, postgres: createPostgres(), cacheTtlMs, outageTtlMs },
    ...{ silentMaxMs, trace, instances, wrong, redisRate, behindMs: 0 },
    start(i: number) {
      const process = createProcess(`i${i}`, rates[i], chance.between(-90_000, 90_000))
      const begin = () => {
        instances[i] = createInstance(fleet, process)
      }
      own.at(own.nowMs, begin, process)
    },
    after: (ms: number, then: () => void) => void own.at(own.nowMs + ms, then, null),
  })
  addKeys(fleet)
  for (let i = 0; i < instanceCount; i++) fleet.start(i)
  return fleet
}

function addKeys({ postgres }: World) {
  tokens.forEach((token, i) => {
    const { hash } = hasher.hashesOf(token)
    postgres.keys.set(idOf(i), {
      ...{ hash, id: idOf(i), userId: 'usr_1', rateLimitRpm: limitMax, version: 1, nowS: 0 },
      ...{ expiresAt: null, revokedAt: null, ownerDeleted: false },
    })
  })
}

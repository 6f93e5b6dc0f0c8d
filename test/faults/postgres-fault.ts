// An instance whose Postgres fails under load: kinds of requests that this affects differently, and
// what must come of each.
import { setTimeout as pause } from 'node:timers/promises'
import type { Sql } from 'postgres'
import type { Test } from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { type Instance, makeKey, makeUser, realTimeLimits, startInstance } from '../instance.ts'
import { type Load, p99, type Sample, startLoad, statuses } from '../load.ts'
import { until } from '../process/until.ts'
import { openDatabase, type Services, useServices } from '../services/index.ts'
import { scaled, soaking } from '../soak.ts'
import { answeredMs as answeredAt } from './answers.ts'
import { isSlow, makeKeys, redisLines } from './fleet.ts'

export const kinds = ['cached', 'listing', 'writing', 'unknown', 'fresh', 'page'] as const
export type Kind = (typeof kinds)[number]

/** What each is answered while nothing is wrong. */
const normal: Record<Kind, number> = {
  cached: 200, // GET /v1/verify with keys in use
  listing: 200, // GET /v1/keys with a key in use: management that reads
  writing: 200, // DELETE of a revoked key with a key in use: management that takes locks, which needs a writable server
  unknown: 401, // keys never created: looked up, and the refusal recorded
  fresh: 200, // keys never used before: looked up
  page: 200, // a page of the documentation: needs no server, so its slowness is this machine's
}

const perSecond: Record<Kind, number> = soaking
  ? { cached: 30, listing: 10, writing: 5, unknown: 15, fresh: 10, page: 20 }
  : { cached: 15, listing: 5, writing: 5, unknown: 10, fresh: 5, page: 10 }

/**
 * goes on: as if nothing were wrong, throughout. stops: 503 from the fault to its end. falters:
 * either. Never anything else, for any of them.
 */
export type Fate = 'goes on' | 'stops' | 'falters'
export type Fates = Record<Kind, Fate>

export const everything = Object.fromEntries(kinds.map((kind) => [kind, 'goes on'])) as Fates
/** What remains when Postgres is down. */
export const onlyCached: Fates = {
  ...everything,
  listing: 'stops',
  writing: 'stops',
  unknown: 'stops',
  fresh: 'stops',
}

/** From the request to its 503, or to any other answer. */
export const answeredMs = 1500
/** Of what goes on. */
const undisturbedMs = 500
export const recoveredMs = 2000
/**
 * If a page that needs no server takes this long, so does everything else, whatever happens to
 * Postgres.
 */
const stallMs = 300
/** Of each kind, that a short run waits for after the fault. */
const answersAfter = 3

export interface World {
  readonly instance: Instance
  readonly userId: string
  /** With the Redis it counts in. */
  readonly services: Services
  makeKeys(count: number): ReturnType<typeof makeKeys>
  /** A load of each kind, with new keys for `seconds`. */
  startLoads(t: Test, seconds: number): Promise<Record<Kind, Load>>
}

export async function startWorld(t: Test, databaseUrl: string): Promise<World> {
  const services = await useServices(t)
  // In a short run a copy is trusted for less than the outage lasts, so that the outage outlives it
  // here, too.
  const env: Record<string, string> = soaking ? {} : { KEY_CACHE_SECONDS: '1' }
  const instance = await startInstance(t, { ...services, databaseUrl }, env, realTimeLimits)
  const { id: userId } = await makeUser(instance)
  const make = (count: number) => makeKeys({ office: instance }, count, { userId })
  const used = (await make(4)).map(({ token }) => token)
  const revoked = await makeKey(instance, { userId })
  await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token: used[0]! })
  const unknown = Array.from({ length: 50 }, () => tokenFormat('lk').mint())

  async function startLoads(t: Test, seconds: number) {
    const fresh = (await make(Math.ceil(seconds * perSecond.fresh))).map(({ token }) => token)
    const load = (kind: Kind, tokens: readonly string[], more: { path?: string; method?: string } = {}) =>
      startLoad(t, { urls: [instance.url], tokens, perSecond: perSecond[kind], ...more })
    return {
      cached: load('cached', used),
      listing: load('listing', used, { path: '/v1/keys?limit=5' }),
      writing: load('writing', used, { path: `/v1/keys/${revoked.id}`, method: 'DELETE' }),
      unknown: load('unknown', unknown),
      fresh: load('fresh', fresh),
      page: load('page', used, { path: '/docs/errors/not_found' }),
    }
  }
  return { instance, userId, services, makeKeys: make, startLoads }
}

export interface Fault {
  begin(): Promise<unknown>
  end(): Promise<unknown>
  forMs: number
  fates: Fates
  /**
   * If this machine stood still in the meantime, or kept Redis from answering in time, start over,
   * up to this many times in all. By default it happens once.
   */
  attempts?: number
}

/**
 * When the fault began and ended (from the order to its completion), performance.now(), and how
 * slow this machine was.
 */
interface Course {
  beganMs: number
  endingMs: number
  endedMs: number
  busyMs: number
}

type Samples = Record<Kind, Sample[]>

export interface Outcome {
  samples: Samples
  /** Keys in use that were served during the fault. */
  cached: Sample[]
  unavailable: Sample[]
  /** Answered neither as usual nor 503. */
  wrong: number
  /**
   * From the end of the fault to the first normal answer of the kind for which that took longest.
   */
  recoveryMs: number
}

export async function underLoad(t: Test, world: World, fault: Fault): Promise<Outcome> {
  const slowLines = () => redisLines(world.instance.log).filter(isSlow)
  for (let left = fault.attempts ?? 1; ; left--) {
    const before = slowLines().length
    const { samples, course } = await endure(t, world, fault)
    const slow = slowLines().slice(before)
    if ((course.busyMs < stallMs && slow.length === 0) || left === 1)
      return outcomeOf(t, samples, course, fault)
    t.comment(`this machine stood still for ${ms(course.busyMs)}, so repeated; ${slow.join('; ')}`)
  }
}

/** More than it takes before and after the fault. */
const spareS = 8
const secondsOf = ({ forMs }: Fault) => forMs / 1000 + spareS

async function endure(t: Test, world: World, fault: Fault): Promise<{ samples: Samples; course: Course }> {
  const loads = await world.startLoads(t, secondsOf(fault))
  const areNormalSince = (sinceMs: number) =>
    kinds.every((kind) => {
      const since = loads[kind].samples.filter(({ sentMs }) => sentMs >= sinceMs)
      return (
        since.length >= answersAfter &&
        since.slice(-answersAfter).every(({ status }) => status === normal[kind])
      )
    })
  await until('each kind is answered as usual', () => areNormalSince(0))
  await fault.begin()
  const beganMs = performance.now()
  await pause(fault.forMs)
  const endingMs = performance.now()
  await fault.end()
  const endedMs = performance.now()
  if (soaking) await pause(recoveredMs + 300)
  else await until('each kind is answered as usual again', () => areNormalSince(endedMs))
  const samples = {} as Samples
  await Promise.all(kinds.map(async (kind) => Object.assign(samples, { [kind]: await loads[kind].stop() })))
  // Only in the soak is there a limit to what a busy machine may add.
  const busyMs = Math.min(slowest(samples.page), scaled(Number.POSITIVE_INFINITY, 1000))
  return { samples, course: { beganMs, endingMs, endedMs, busyMs } }
}

const slowest = (samples: Sample[]) => Math.max(...samples.map(({ tookMs }) => tookMs))
/** Outside the soak, the machine may have other work. */
const leniency = scaled(20, 1)

const ms = (value: number) => `${Math.round(value)} ms`
const isUnavailable = ({ status }: Sample) => status === 503
const isDuring =
  ({ beganMs, endingMs }: Course) =>
  (sample: Sample) =>
    sample.sentMs >= beganMs && answeredAt(sample) <= endingMs

function outcomeOf(t: Test, samples: Samples, course: Course, fault: Fault): Outcome {
  const freshSent = samples.fresh.filter(({ sentMs }) => sentMs < course.endingMs).length
  t.ok(freshSent <= secondsOf(fault) * perSecond.fresh, 'there were new keys for as long as it lasted')
  const recoveries = kinds.map((kind) => judge(t, kind, samples[kind], fault.fates[kind], course))
  const isWrong = (kind: Kind) => (one: Sample) => one.status !== normal[kind] && !isUnavailable(one)
  return {
    samples,
    cached: samples.cached.filter((one) => isDuring(course)(one) && one.status === normal.cached),
    unavailable: Object.values(samples).flat().filter(isUnavailable),
    wrong: kinds.flatMap((kind) => samples[kind].filter(isWrong(kind))).length,
    recoveryMs: Math.max(...recoveries),
  }
}

/** Answers how long after the fault this kind was answered as usual for the first time. */
function judge(t: Test, kind: Kind, samples: Sample[], fate: Fate, course: Course): number {
  const { endedMs, busyMs } = course
  const isNormal = ({ status }: Sample) => status === normal[kind]
  const unavailable = samples.filter(isUnavailable)
  const wrong = samples.filter((one) => !isNormal(one) && !isUnavailable(one))
  t.strictSame(
    statuses(wrong),
    {},
    `${kind}: nothing but ${normal[kind]}${fate === 'goes on' ? '' : ' and 503'}`,
  )
  const silent = unavailable.filter(({ headers }) => !(Number(headers['retry-after']) >= 1))
  t.strictSame(silent, [], `${kind}: each 503 says when to come back`)
  const slowestMs = slowest(samples)
  const boundMs = busyMs + leniency * (fate === 'goes on' ? undisturbedMs : answeredMs)
  t.ok(slowestMs <= boundMs, `${kind}: the slowest answer after ${ms(slowestMs)}, a page after ${ms(busyMs)}`)

  const during = samples.filter(isDuring(course))
  t.ok(during.length > 0, `${kind}: was asked for during the fault`)
  if (fate === 'goes on') t.equal(unavailable.length, 0, `${kind}: goes on throughout`)
  if (fate === 'stops') t.strictSame(statuses(during), { 503: during.length }, `${kind}: stops`)

  const first = samples.filter((one) => isNormal(one) && answeredAt(one) >= endedMs).map(answeredAt)
  const recoveryMs = Math.min(...first) - endedMs
  t.ok(recoveryMs <= leniency * recoveredMs + busyMs, `${kind}: there again after ${ms(recoveryMs)}`)
  const later = samples.filter(({ sentMs }) => sentMs >= endedMs + recoveredMs)
  t.ok(later.every(isNormal) && (later.length > 0 || !soaking), `${kind}: and as usual from then on`)
  return recoveryMs
}

/** For docs/reliability.md. */
export function figuresOf(outcomes: readonly Outcome[]) {
  const cached = outcomes.flatMap((one) => one.cached)
  const unavailable = outcomes.flatMap((one) => one.unavailable)
  return {
    rounds: outcomes.length,
    cached: cached.length,
    p99Ms: p99(cached),
    unavailable: unavailable.length,
    slowestMs: Math.max(0, slowest(unavailable)),
    wrong: outcomes.reduce((sum, { wrong }) => sum + wrong, 0),
    backMs: Math.max(...outcomes.map(({ recoveryMs }) => recoveryMs)),
  }
}

/** Holds what `lock` locks, in a transaction; resolves, once it has it, with how to let go. */
export function holdLock(sql: Sql, lock: (tx: Sql) => PromiseLike<unknown>): Promise<() => void> {
  return new Promise((resolve, reject) => {
    const holding = sql.begin(async (tx) => {
      await lock(tx as unknown as Sql)
      await new Promise<void>((release) => resolve(release))
    })
    holding.catch(reject)
  })
}

/**
 * Asserts that each refusal that a client was given is in the audit log, once. Returns how many are
 * missing.
 */
export async function expectRecorded(t: Test, url: string, requestIds: readonly string[]): Promise<number> {
  const sql = openDatabase(t, url)
  const [found] = await sql`
    select count(*)::int as entries, count(distinct request_id)::int as requests
    from audit_log where request_id = any (${requestIds as string[]})`
  await sql.end()
  const count = requestIds.length
  t.same(found, { entries: count, requests: count }, `${count} refusals, each recorded once`)
  return count - found!.requests
}

export const refusedIds = (samples: readonly Sample[]): string[] =>
  samples.filter(({ status }) => status === 401).map(({ headers }) => String(headers['x-request-id']))

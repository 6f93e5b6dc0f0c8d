/** Sends requests and changes, and checks every answer. */
import { elsewhereMs } from '../../src/rules/clock-rates.ts'
import { denialReason } from '../../src/rules/key-state.ts'
import { type Fleet, idOf, limitMax, secondsAt, tokens } from './fleet.ts'
import type { Instance } from './instance.ts'
import type { Decided } from './request.ts'
import { type Change, instanceCount } from './schedule.ts'

export interface Clients {
  /** The latest version of each key that was answered. */
  readonly answered: number[]
  readonly sent: { requests: number; changes: number }
  /** Requests and changes that wait for their answer. */
  waiting(): number
  request(instance: number, key: number, then?: (status: number) => void): void
  /** A request that must not get a 503 if the instance has a copy. */
  mustPass(instance: number, key: number): void
  change(instance: number, key: number, what: Change, then?: (answered: boolean) => void): void
  /** Nobody waits for this one any more. */
  killed(instance: Instance): void
  /** Lets it answer what it has, and end. */
  stop(instance: Instance, then: () => void): void
  checkOverdue(): void
}

/** A request needs at most two look-ups, a count and a refusal, each with its time limit. */
const requestMaxMs = 1000 + 100 + 1000 + 1200 + 500
/**
 * An instance counts down to it by its own clock, from a read at most two seconds earlier. It notices when
 * this clock stands still for longer than 150 ms, or several times.
 */
const expiryOffByMs = ({ process: { stoodStillMs } }: Instance) => (stoodStillMs > 0 ? 400 : 100)
/** A copy ends by itself, also if its key was changed by somebody who got no answer. */
const staleMaxMs = ({ cacheTtlMs, outageTtlMs, pausedMs, behindMs }: Fleet) =>
  elsewhereMs(Math.max(cacheTtlMs, outageTtlMs)) + 250 + pausedMs + behindMs
/** A publication waits until no copy is trusted. */
const changeMaxMs = (cacheTtlMs: number) => 1100 + elsewhereMs(cacheTtlMs) + 250 + 4000 + 1100 + 500

export function createClients(fleet: Fleet): Clients {
  const { time, chance, trace, fail } = fleet
  const answered = tokens.map(() => 1)
  const open = new Map<string, { instance: Instance; dueMs: number }>()
  const admitted = new Map<string, number>()
  /** Which instances have used which key. */
  const hasCopy = new Set<string>()
  const sent = { requests: 0, changes: 0 }

  function add(instance: Instance, id: string, ms: number) {
    // Without the pauses to come, which `pausedMs` counts from the start.
    const dueMs = Math.max(time.nowMs, instance.process.pausedUntilMs) + ms * 1.02 - fleet.pausedMs
    open.set(id, { instance, dueMs })
  }

  /** `began.version`: the latest that had been answered then. */
  function check(
    { status, version, limit, requestId }: Decided,
    key: number,
    instance: Instance,
    began: { atMs: number; version: number },
  ) {
    const stored = fleet.postgres.keys.get(idOf(key))!
    if (version !== null && version < began.version)
      fail(`${requestId}: decided by version ${version} of key ${key}, ${began.version} was answered before`)
    const past = fleet.postgres.past.findLast(
      (one) => one.key.id === idOf(key) && one.key.version === version,
    )
    if (version !== stored.version && past && began.atMs > past.untilMs + staleMaxMs(fleet))
      fail(`${requestId}: decided by version ${version} of key ${key}, which ended long ago`)
    // Each change of the state has a version of its own, except that time goes by.
    if (version === stored.version) {
      const denial = denialReason(stored, secondsAt(began.atMs - expiryOffByMs(instance)))
      if (status === 200 && denial !== null) fail(`${requestId}: key ${key} is used, although ${denial}`)
      if (limit !== stored.rateLimitRpm)
        fail(`${requestId}: version ${version} of key ${key} has another limit`)
    }
    if (status === 401 && !fleet.postgres.audit.has(requestId)) fail(`${requestId}: 401 without its record`)
    if (status === 401 && denialReason(stored, secondsAt(time.nowMs)) === null)
      fail(`${requestId}: 401 for a usable key`)
  }

  /** In Redis or locally, an instance goes on from the last count that it saw. */
  function admit({ process }: Instance, key: number, resetAtS: number) {
    const name = `${process.number}:${key}:${resetAtS}`
    const count = (admitted.get(name) ?? 0) + 1
    admitted.set(name, count)
    if (fleet.clockJumped || process.clockJumped || count <= limitMax) return
    fail(`${process.name} admits ${count} requests with key ${key} in one minute, ${limitMax} are allowed`)
  }

  function request(i: number, key: number, then?: (status: number) => void) {
    const instance = fleet.instances[i]!
    const { process } = instance
    if (process.killed || instance.stopping) return
    const requestId = `req_${sent.requests++}`
    const began = { atMs: time.nowMs, version: answered[key]! }
    trace?.(`i${i} ← ${requestId} with key ${key}`)
    add(instance, requestId, requestMaxMs)
    const send = () =>
      instance.request(tokens[key]!, requestId).then(
        (decided) => {
          const { status, version, resetAtS } = decided
          if (!open.delete(requestId)) fail(`${requestId} was answered twice`)
          trace?.(`i${i} → ${requestId} ${status}${version ? ` by version ${version}` : ''}`)
          check(decided, key, instance, began)
          if (status === 200) {
            admit(instance, key, resetAtS)
            hasCopy.add(`${i}:${key}`)
          }
          then?.(status)
        },
        (error: Error) => fail(`${requestId}: ${error.stack}`),
      )
    time.at(time.nowMs, send, process)
  }

  /** Requests that must see the change, now and soon. */
  function requestAfter(key: number) {
    const soonMs = time.nowMs + chance.between(0, 300)
    for (let i = 0; i < instanceCount; i++)
      for (const atMs of [time.nowMs, soonMs]) if (chance.is(0.5)) time.at(atMs, () => request(i, key), null)
  }

  const change: Clients['change'] = (i, key, what, then) => {
    const instance = fleet.instances[i]!
    if (instance.process.killed || instance.stopping) return
    const changeId = `change_${sent.changes++}`
    trace?.(`i${i} ← ${changeId}: ${what} key ${key}`)
    add(instance, changeId, changeMaxMs(fleet.cacheTtlMs))
    const send = () =>
      instance.change(idOf(key), what).then(
        (versions) => {
          open.delete(changeId)
          trace?.(`i${i} → ${changeId} answered`)
          then?.(true)
          for (const { keyId, version } of versions) {
            const changed = tokens.findIndex((_, key) => idOf(key) === keyId)
            answered[changed] = Math.max(answered[changed]!, version)
            requestAfter(changed)
          }
        },
        (error: Error) => {
          open.delete(changeId)
          trace?.(`i${i} → ${changeId} failed: ${error.message}`)
          then?.(false)
          if ((error as { statusCode?: number }).statusCode !== 503) fail(`${changeId}: ${error.stack}`)
        },
      )
    time.at(time.nowMs, send, instance.process)
  }

  const isBusy = (one: Instance) => [...open.values()].some(({ instance }) => instance === one)

  function stop(instance: Instance, then: () => void) {
    const { process } = instance
    if (process.killed || instance.stopping) return
    instance.stopping = true
    const ended = () => {
      process.killed = true
      fleet.after(0, then)
    }
    const whenIdle = () => {
      if (process.killed) return
      if (isBusy(instance)) fleet.after(50, whenIdle)
      else time.at(time.nowMs, () => instance.close().then(ended), process)
    }
    whenIdle()
  }

  return {
    answered,
    sent,
    waiting: () => open.size,
    request,
    mustPass: (i, key) =>
      request(i, key, (status) => {
        if (status === 503 && hasCopy.has(`${i}:${key}`))
          fail(`i${i} answers 503 for key ${key}, though it has a copy to go on with`)
      }),
    change,
    stop,
    killed(killed) {
      for (const [id, { instance }] of open) if (instance === killed) open.delete(id)
    },
    checkOverdue() {
      for (const [id, { dueMs }] of open) if (time.nowMs > dueMs + fleet.pausedMs) fail(`${id} has no answer`)
    },
  }
}

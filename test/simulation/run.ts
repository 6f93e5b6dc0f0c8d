/** Runs a schedule, and checks what Latchkey promises at every step. */
import { denialReason } from '../../src/rules/key-state.ts'
import type { KeyCredential } from '../../src/stores.ts'
import { type Chance, chanceOf } from './chance.ts'
import { type Clients, createClients } from './clients.ts'
import { createFaults } from './faults.ts'
import { createFleet, type Fleet, idOf, secondsAt, tokens } from './fleet.ts'
import { instanceCount, type Schedule } from './schedule.ts'

export { startSimulating } from './fleet.ts'

/** After the last fault, for what is late, and until everything is as if there had been none. */
const quietMs = (cacheTtlMs: number) => Math.max(2500, cacheTtlMs + 500)
const settleMaxMs = 9000
const checkEveryMs = 500
/** In that time. The busiest runs have 250; a loop that does not wait has thousands. */
const eventsMax = 1000

export interface Result {
  /** Empty if no promise was broken. */
  wrong: string[]
  requests: number
  changes: number
  faults: number
}

/** `lines` takes a readable trace. */
export async function runSchedule(schedule: Schedule, lines?: string[]): Promise<Result> {
  const fleet = createFleet(schedule, lines)
  const { time, wrong } = fleet
  const clients = createClients(fleet)
  fleet.trace?.(
    `copies are trusted for ${schedule.cacheTtlMs} ms, in an outage for ${schedule.outageTtlMs} ms`,
  )
  const act = createFaults(fleet, clients)
  keepChecking(fleet, clients)
  const { actions } = schedule
  for (const action of actions) time.at(100 + action.at, () => act(action), null)
  const endMs = 100 + Math.max(0, ...actions.map((one) => one.at + ('for' in one ? one.for : 0)))
  await time.run(endMs + quietMs(schedule.cacheTtlMs))
  while (wrong.length === 0 && time.nowMs < endMs + settleMaxMs && !isSettled(fleet, clients))
    await time.run(time.nowMs + 250)
  // A key that is new to an instance is read for its first request, and confirmed by its second.
  for (let round = 0; round < 3 && wrong.length === 0; round++) await checkEnd(fleet, clients, round > 1)
  if (wrong.length === 0) await checkChange(fleet, clients, chanceOf(schedule.seed ^ 0xc4a9))
  const faults = actions.filter((one) => one.do !== 'request' && one.do !== 'change').length
  return { wrong, ...clients.sent, faults }
}

function keepChecking(fleet: Fleet, clients: Clients, before = 0) {
  fleet.after(checkEveryMs, () => {
    const { events } = fleet.time
    clients.checkOverdue()
    if (events - before > eventsMax) fleet.fail(`${events - before} events in ${checkEveryMs} ms`)
    keepChecking(fleet, clients, events)
  })
}

const isSettled = ({ instances }: Fleet, clients: Clients) =>
  clients.waiting() === 0 &&
  instances.every(({ stopping, counter }) => !stopping && counter.mode() === 'shared')

/** Everything works again, from the cache, and by the latest state. */
async function checkEnd(fleet: Fleet, clients: Clients, isRead: boolean) {
  const { time, instances, postgres, cacheTtlMs, redisRate, fail } = fleet
  const isUsable = (key: KeyCredential) => denialReason(key, secondsAt(time.nowMs)) === null
  const lookups = instances.map((instance) => instance.lookups)
  tokens.forEach((_, key) => {
    const stored = postgres.keys.get(idOf(key))!
    clients.answered[key] = stored.version
    const expected = isUsable(stored) ? [200, 429] : [401]
    for (let i = 0; i < instanceCount; i++)
      clients.request(i, key, (status) => {
        if (!expected.includes(status)) fail(`in the end i${i} answers ${status} for key ${key}`)
      })
  })
  await time.run(time.nowMs + 150)
  // A refused key is read each time, and so is a copy that is half as old as it may be: after a report,
  // which renews it, that takes longer than a second.
  const isCached = cacheTtlMs > 2000 && [...postgres.keys.values()].every(isUsable)
  instances.forEach((instance, i) => {
    // One whose clock has another rate than Redis's distrusts its copies from time to time.
    const isSteady = instance.process.rate === redisRate
    if (isRead && isCached && isSteady && instance.lookups > lookups[i]!)
      fail(`in the end i${i} does not use its cache`)
  })
}

/** A change succeeds and is seen by all, even if its instance has no Redis. */
async function checkChange(fleet: Fleet, clients: Clients, chance: Chance) {
  const { time, instances, fail } = fleet
  const i = chance.whole(instanceCount)
  if (chance.is(0.3) && !isWaitedFor(fleet)) {
    instances[i]!.links.redis.refusedUntilMs = Infinity
    instances[i]!.checkConnections()
  }
  clients.change(i, 0, 'revoke', (isAnswered) => {
    if (!isAnswered) fail(`in the end i${i} cannot revoke key 0`)
    for (let j = 0; j < instanceCount; j++)
      clients.request(j, 0, (status) => {
        if (status !== 401) fail(`in the end i${j} answers ${status} for a revoked key`)
      })
  })
  while (clients.waiting() > 0 && fleet.wrong.length === 0) await time.run(time.nowMs + 250)
}

/** Whether changes that Redis does not confirm must wait for an instance that was killed. */
const isWaitedFor = ({ time, postgres, instances, outageTtlMs }: Fleet) =>
  [...postgres.instances].some(
    ([id, { seenMs }]) =>
      !instances.some((instance) => instance.id === id) && seenMs > time.nowMs - outageTtlMs + 2000,
  )

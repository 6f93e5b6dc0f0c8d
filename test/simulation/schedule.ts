/** What happens in one run: requests, changes and faults, made from a seed. */
import { type Chance, chanceOf } from './chance.ts'
import { changeOf, type Scene, scenes } from './scenes.ts'

export const instanceCount = 3
export const keyCount = 2

/** What an instance has a connection to: Redis, the pools of Postgres, or all of these. */
export type Peer = 'redis' | 'postgres' | Pool
export const pools = ['lookups', 'management', 'background', 'refusals', 'reports'] as const
export type Pool = (typeof pools)[number]

/** `expire`: in two seconds. `keep`: no longer expires. `delete owner`: of all keys. */
export type Change = 'limit' | 'expire' | 'keep' | 'revoke' | 'delete owner'

/** What a Redis answers that cannot count. */
export type Refusal = 'OOM' | 'READONLY' | 'LOADING'

/** `at`: milliseconds from the start; `for`: how long it lasts; `passes`: a 503 would be wrong. */
export type Action = { at: number } & (
  | { do: 'request'; instance: number; key: number; times: number; passes?: boolean }
  | { do: 'change'; instance: number; key: number; change: Change }
  | { do: 'pause' | 'suspend' | 'kill' | 'stop'; instance: number; for: number }
  | { do: 'jump clock'; of: number | 'redis'; by: number }
  | { do: 'hold' | 'refuse'; instance: number; server: Peer; for: number }
  | { do: 'delay'; instance: number; server: Peer; for: number; ms: number }
  | { do: 'freeze'; server: 'redis' | 'postgres'; for: number }
  | { do: 'restart postgres'; for: number }
  /** Another server, which lacks the changes of so many milliseconds. `for`: until Redis has forgotten them. */
  | { do: 'restore postgres'; for: number; lag: number }
  | { do: 'read standby'; instance: number; for: number; lag: number }
  /** Over connections that stayed open: the server takes no changes any more. */
  | { do: 'read former primary'; instance: number; for: number }
  /** `lag`: how old the data is that the server has then; null for none. */
  | { do: 'restart redis'; for: number; lag: number | null }
  | { do: 'fail over redis'; for: number; lag: number | null }
  | { do: 'flush redis' }
  | { do: 'redis refuses'; for: number; reply: Refusal }
  | { do: 'evict'; key: number }
)

export interface Schedule {
  seed: number
  /** KEY_CACHE_SECONDS. */
  cacheTtlMs: number
  /** OUTAGE_CACHE_SECONDS. */
  outageTtlMs: number
  /** An instance that was silent for longer is not told what has changed. */
  silentMaxMs: number
  /** All clocks are right. */
  clocksAgree?: boolean
  /** The clocks of this instance and of Redis are as slow as they may be, those of the others as fast. */
  slow?: number
  actions: Action[]
}

type Fault = (chance: Chance) => Record<string, unknown>

const ofInstances: Fault[] = [
  ...(['pause', 'suspend'] as const).map(
    (what): Fault =>
      (chance) => ({ do: what, instance: chance.whole(instanceCount), for: chance.between(5, 1500) }),
  ),
  (chance) => ({ do: 'kill', instance: chance.whole(instanceCount), for: chance.between(50, 1000) }),
  (chance) => ({ do: 'stop', instance: chance.whole(instanceCount), for: chance.between(50, 1000) }),
  (chance) => ({
    do: 'jump clock',
    of: chance.oneOf([0, 1, 2, 'redis']),
    by: chance.oneOf([-70_000, -1000, 1000, 70_000]),
  }),
]

const peerOf = (chance: Chance, server: 'redis' | 'postgres'): Peer =>
  server === 'postgres' && chance.is(0.3) ? chance.oneOf(pools) : server

/** Of a server, or of the way to it. */
const silences = (server: 'redis' | 'postgres'): Fault[] => [
  (chance) => ({ do: 'freeze', server, for: lasting(chance) }),
  ...(['hold', 'refuse'] as const).map(
    (what): Fault =>
      (chance) => ({
        do: what,
        instance: chance.whole(instanceCount),
        server: peerOf(chance, server),
        for: lasting(chance),
      }),
  ),
  (chance) => ({
    do: 'delay',
    instance: chance.whole(instanceCount),
    server: peerOf(chance, server),
    for: lasting(chance),
    ms: chance.oneOf([5, 50, 200, 600]),
  }),
]

const standby: Fault = (chance) => ({
  do: 'read standby',
  instance: chance.whole(instanceCount),
  for: lasting(chance),
  lag: chance.oneOf([20, 500, 4000]),
})

const formerPrimary: Fault = (chance) => ({
  do: 'read former primary',
  instance: chance.whole(instanceCount),
  for: lasting(chance),
})

const refusals: Fault = (chance) => ({
  do: 'redis refuses',
  for: lasting(chance),
  reply: chance.oneOf(['OOM', 'READONLY', 'LOADING']),
})

const lossesOfRedis: Fault[] = [
  (chance) => ({ do: 'restart redis', for: chance.between(10, 2000), lag: lagOf(chance) }),
  (chance) => ({ do: 'fail over redis', for: chance.between(10, 1000), lag: lagOf(chance) }),
  () => ({ do: 'flush redis' }),
  (chance) => ({ do: 'evict', key: keyOf(chance) }),
]

const ofRedis = [...silences('redis'), refusals, ...lossesOfRedis]
const ofPostgres: Fault[] = [
  ...silences('postgres'),
  (chance) => ({ do: 'restart postgres', for: chance.between(10, 2000) }),
]

/** What may happen in one run beside faults of instances. */
const families = [
  ofRedis,
  [...ofPostgres, ...lossesOfRedis],
  [...ofPostgres, standby, formerPrimary],
  [...ofPostgres, ...silences('redis')],
]

const requestAt = (at: number, chance: Chance): Action => ({
  ...{ at, do: 'request', instance: chance.whole(instanceCount), key: keyOf(chance) },
  times: 1 + chance.whole(3),
})

/** Most of what happens is about one key. */
const keyOf = (chance: Chance) => (chance.is(0.8) ? 0 : 1)
const lasting = (chance: Chance) => chance.oneOf([30, 150, 700, 3000, 6000]) * chance.between(0.5, 1.5)
const lagOf = (chance: Chance) => (chance.is(0.3) ? null : chance.oneOf([0, 5, 200, 3000]))

export function scheduleOf(seed: number): Schedule {
  const chance = chanceOf(seed)
  const { actions, ...rest } = chance.is(0.5) ? anything(chance) : aimed(chance)
  const silentMaxMs = chance.oneOf([1500, 5 * 60_000])
  return { seed, silentMaxMs, ...rest, actions: actions.sort((a, b) => a.at - b.at) }
}

/** A scene, and a little beside it. */
function aimed(chance: Chance): Scene {
  const [a, b, c] = chance.oneOf([
    [0, 1, 2],
    [1, 2, 0],
    [2, 0, 1],
  ])
  const atMs = chance.between(1200, 3000)
  const scene = chance.oneOf(scenes)({ chance, atMs, a: a!, b: b!, c: c! })
  const { actions } = scene
  // What must pass could not with another fault.
  if (scene.clocksAgree) return scene
  const near = () => Math.max(0, atMs + chance.between(-1, 1) ** 3 * 3000)
  // No standby that is behind: beside a lost Redis that is one fault too many.
  const fault = chance.oneOf([...ofInstances, ...ofPostgres])
  if (chance.is(0.3)) actions.push({ at: near(), ...fault(chance) } as Action)
  for (let i = chance.whole(3); i > 0; i--) actions.push(requestAt(near(), chance))
  return scene
}

/** Some kinds of fault, so that each run goes deep into a few; they gather around the changes. */
function anything(chance: Chance): Scene {
  const lengthMs = chance.between(1500, 8000)
  const actions: object[] = []
  const request = (at: number) => actions.push(requestAt(at, chance))
  const changes = Array.from({ length: 1 + chance.whole(4) }, () => chance.between(200, lengthMs))
  const near = () => Math.max(0, chance.oneOf(changes) + chance.between(-1, 1) ** 3 * 3000)

  for (const at of changes) {
    actions.push({
      at,
      do: 'change',
      change: changeOf(chance),
      instance: chance.whole(instanceCount),
      key: keyOf(chance),
    })
    // A copy to act on.
    for (let i = chance.whole(4); i > 0; i--) request(Math.max(0, at - chance.between(0, 1500)))
  }
  const faults = [...ofInstances, ...chance.oneOf(families)]
  const kinds = Array.from({ length: 1 + chance.whole(3) }, () => chance.oneOf(faults))
  for (let i = chance.whole(7); i > 0; i--) {
    const at = near()
    const fault: { for?: number } = chance.oneOf(kinds)(chance)
    actions.push({ at, ...fault })
    for (let n = chance.whole(3); n > 0; n--) request(at + (fault.for ?? 0) + chance.between(0, 800))
  }
  for (let i = 4 + chance.whole(12); i > 0; i--)
    request(chance.is(0.5) ? near() : chance.between(0, lengthMs))
  return {
    cacheTtlMs: chance.oneOf([0, 400, 1500, 3000, 3000]),
    outageTtlMs: chance.oneOf([0, 2500, 10_000]),
    actions: actions as Action[],
  }
}

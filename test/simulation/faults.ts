/** What an action of a schedule does to the instances, the servers and the network. */
import type { Clients } from './clients.ts'
import { type Fleet, idOf } from './fleet.ts'
import { keysAt, primary, type Source } from './postgres.ts'
import { createServer, writesUntil } from './redis-server.ts'
import { type Action, type Peer, pools } from './schedule.ts'

type Acts = { [D in Action['do']]: (action: Action & { do: D }) => void }

/** Resets each fault after its time. */
export function createFaults(fleet: Fleet, clients: Clients): (action: Action) => void {
  const { time, redis, postgres, redisMicrosAt, after } = fleet
  const instance = (i: number) => fleet.instances[i]!
  const linksOf = ({ instance: i, server }: { instance: number; server: Peer }) =>
    (server === 'postgres' ? pools : [server]).map((peer) => instance(i).links[peer])
  const checkConnections = () => {
    for (const one of fleet.instances) one.checkConnections()
  }
  /** What waits for the end must not be overtaken: connections keep their order. */
  const longer = (untilMs: number, forMs: number) => Math.max(untilMs, time.nowMs + forMs)

  function replaceRedis({ for: forMs, lag }: { for: number; lag: number | null }) {
    const old = redis.master
    old.down = true
    const writes = lag === null ? [] : writesUntil(old, redisMicrosAt(time.nowMs - lag))
    const next = createServer(() => redisMicrosAt(time.nowMs), writes, old.clockMs)
    next.down = true
    redis.master = next
    fleet.countsLost()
    checkConnections()
    after(forMs, () => {
      next.down = false
    })
  }

  function readFrom({ instance: i, for: forMs }: { instance: number; for: number }, source: Source) {
    const reader = instance(i)
    reader.reads = source
    fleet.behindMs += forMs + time.nowMs - source.hasUntilMs(time.nowMs)
    after(forMs, () => {
      reader.reads = primary
    })
  }

  const acts: Acts = {
    request(action) {
      const send = action.passes ? clients.mustPass : clients.request
      for (let n = 0; n < action.times; n++) send(action.instance, action.key)
    },
    change: (action) => clients.change(action.instance, action.key, action.change),
    pause(action) {
      const { process } = instance(action.instance)
      process.pausedUntilMs = longer(process.pausedUntilMs, action.for)
      fleet.pausedMs += action.for
    },
    suspend(action) {
      time.suspend(instance(action.instance).process, action.for)
      fleet.pausedMs += action.for
    },
    kill(action) {
      const killed = instance(action.instance)
      if (killed.process.killed) return
      killed.process.killed = true
      clients.killed(killed)
      after(action.for, () => fleet.start(action.instance))
    },
    stop(action) {
      const stopped = instance(action.instance)
      clients.stop(stopped, () => after(action.for, () => fleet.start(action.instance)))
    },
    'jump clock'({ of, by }) {
      if (of !== 'redis') {
        instance(of).process.clockMs += by
        instance(of).process.clockJumped = true
        return
      }
      redis.master.clockMs += by
      fleet.clockJumped = true
      fleet.countsLost()
    },
    hold(action) {
      for (const link of linksOf(action)) link.heldUntilMs = longer(link.heldUntilMs, action.for)
    },
    refuse(action) {
      for (const link of linksOf(action)) link.refusedUntilMs = time.nowMs + action.for
      checkConnections()
    },
    delay(action) {
      const links = linksOf(action)
      for (const link of links) link.delayMs = action.ms
      after(action.for, () => {
        for (const link of links) link.delayMs = 1
      })
    },
    freeze(action) {
      const server = action.server === 'redis' ? redis.master : postgres
      server.frozenUntilMs = longer(server.frozenUntilMs, action.for)
    },
    'restart postgres'(action) {
      postgres.epoch++
      postgres.downUntilMs = time.nowMs + action.for
    },
    'restore postgres'({ lag }) {
      for (const key of keysAt(postgres, time.nowMs - lag)) postgres.keys.set(key.id, key)
      postgres.past.length = 0
      postgres.epoch++
    },
    'read standby': (action) =>
      readFrom(action, { role: 'standby', hasUntilMs: (nowMs) => nowMs - action.lag }),
    'read former primary'(action) {
      const { nowMs } = time
      readFrom(action, { role: 'read_only', hasUntilMs: () => nowMs })
    },
    'restart redis': replaceRedis,
    'fail over redis': replaceRedis,
    'redis refuses'(action) {
      redis.master.refuses = { untilMs: time.nowMs + action.for, reply: action.reply }
    },
    'flush redis'() {
      fleet.countsLost()
      redis.master.data.clear()
    },
    evict(action) {
      redis.master.data.delete(`rl:{${idOf(action.key)}}:v`)
    },
  }

  return (action) => {
    if (action.do !== 'request' && action.do !== 'change') fleet.trace?.(described(action))
    ;(acts[action.do] as (action: Action) => void)(action)
  }
}

/** "hold: instance 1, server redis, for 150" */
function described({ at: _, do: what, ...details }: Action): string {
  const values = Object.entries(details).map(
    ([name, value]) => `${name} ${typeof value === 'number' ? Math.round(value) : value}`,
  )
  return values.length === 0 ? what : `${what}: ${values.join(', ')}`
}

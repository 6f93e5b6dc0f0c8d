/** One instance: the real guard, counter and publication on the models of its servers. */
import { createGate } from '../../src/guard/gate.ts'
import { createKeyCache } from '../../src/guard/key-cache.ts'
import { createLastUsed } from '../../src/guard/last-used.ts'
import { createOldCopies } from '../../src/guard/old-copies.ts'
import { createPublish } from '../../src/guard/publish.ts'
import { createRefusals } from '../../src/guard/refusals.ts'
import { createUnchanged } from '../../src/guard/unchanged.ts'
import { checkWith } from '../../src/package/check.ts'
import { createHeartbeat } from '../../src/process/heartbeat.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { type KeyHasher, keyHasher, type TokenHashes } from '../../src/rules/key-hasher.ts'
import type { Counter, InstanceReport, KeyVersion } from '../../src/stores.ts'
import type { Chance } from './chance.ts'
import { createLink, type Link } from './link.ts'
import { type PostgresServer, primary, type Source } from './postgres.ts'
import { createClient, type RedisService } from './redis-client.ts'
import { type Decided, request } from './request.ts'
import type { Change, Pool } from './schedule.ts'
import { createStores } from './stores.ts'
import type { Process, Time, Trace } from './time.ts'

export interface World {
  readonly time: Time
  readonly chance: Chance
  readonly redis: RedisService
  readonly postgres: PostgresServer
  readonly cacheTtlMs: number
  readonly outageTtlMs: number
  readonly silentMaxMs: number
  readonly trace: Trace
  onHit(keyId: string): void
  onCounted(keyId: string, counted: Counted): void
  /** Redis has counted a call that was sent then. */
  onRun(sentAtMs: number): void
}

export interface Counted {
  count: number
  nowMs: number
  shared: boolean
}

export interface Instance {
  readonly id: string
  readonly process: Process
  readonly links: Readonly<Record<'redis' | Pool, Link>>
  readonly counter: Counter
  /** Statements that read keys. */
  lookups: number
  /** The server from which it reads keys. */
  reads: Source
  /** Takes no more requests. */
  stopping: boolean
  request(token: string, requestId: string): Promise<Decided>
  /** Resolves to the versions that were answered, once the change is in force. */
  change(keyId: string, change: Change): Promise<KeyVersion[]>
  /** After a server or a link has changed. */
  checkConnections(): void
  /** Resolves once it has told the others. */
  close(): Promise<void>
}

const realHasher = keyHasher('a secret of the simulation, thirty-two characters')
const hashes = new Map<string, TokenHashes>()
/** There are few tokens, and an HMAC takes as long as all else of a request. */
export const hasher: KeyHasher = {
  ...realHasher,
  hashesOf(token) {
    if (!hashes.has(token)) hashes.set(token, realHasher.hashesOf(token))
    return hashes.get(token)!
  },
}

/** To be called as an event of this process. */
export function createInstance(world: World, process: Process): Instance {
  const { time, chance, redis, cacheTtlMs, outageTtlMs, trace } = world
  const links = createLinks()
  const instance = {
    id: `${process.name}@${process.number}`,
    process,
    links,
    lookups: 0,
    reads: primary,
    stopping: false,
  } as Instance
  const stores = createStores(world, instance)
  const { client, check: checkConnections } = createClient(time, chance, process, {
    service: redis,
    link: links.redis,
    onRun(sentAtMs) {
      if (!process.clockJumped) world.onRun(sentAtMs)
    },
    trace,
  })
  let invalidateCopies = () => {}
  const counter = createRedisCounter({
    client,
    onOutage: (outage) =>
      trace?.(`${process.name}: ${outage ? `counts locally: ${outage.reason}` : 'counts in Redis'}`),
    onOtherServer: () => invalidateCopies(),
  })
  const oldCopies = createOldCopies(outageTtlMs)
  const unchanged = createUnchanged()
  const lastUsed = createLastUsed(stores)
  const gate = createGate({
    ...{ cacheTtlMs, outageTtlMs, degradedCacheTtlMs: 0, lookupTimeoutMs: 1000 },
    ...{ hasher, keys: stores.keys, counter: watched(counter, world) },
    cache: createKeyCache(1000),
    oldCopies: oldCopies.allowed,
    unchanged,
    onUse: lastUsed.note,
    onStaleHash() {},
  })
  // As in src/process/guarding.ts.
  invalidateCopies = () => {
    gate.invalidateBefore()
    oldCopies.startOver()
  }
  const check = checkWith(gate, 'lk_')
  const refusals = createRefusals({
    ...{ audit: stores.audit, perAddressRpm: 1_000_000, timeoutMs: 1200 },
    onBatch() {},
    onShed() {},
    onCommit() {},
    onOverBudget() {},
  })
  const heartbeat = createHeartbeat({
    ...{ instances: stores.instances, oldCopies, unchanged },
    report: () => ({ id: instance.id }) as InstanceReport,
    onFault() {},
  })
  void heartbeat.start()
  const { fences } = stores.instances
  const publish = createPublish({ counter, fences, maxStaleMs: cacheTtlMs, fenceTimeoutMs: 4000 })
  return Object.assign(instance, {
    counter,
    request: (token: string, requestId: string) => request({ check, refusals }, token, requestId),
    change: (keyId: string, change: Change) => stores.changeKey(publish, keyId, change),
    checkConnections,
    /** As in src/process/guarding.ts. */
    async close() {
      await gate.close()
      await Promise.all([lastUsed.close().catch(() => {}), heartbeat.close()])
      await counter.close()
    },
  })
}

const createLinks = () => ({
  ...{ redis: createLink(), lookups: createLink(), management: createLink() },
  ...{ background: createLink(), refusals: createLink(), reports: createLink() },
})

const watched = (counter: Counter, world: World): Pick<Counter, 'hit' | 'confirm' | 'raise'> => ({
  confirm: counter.confirm,
  raise: counter.raise,
  hit(keyId, onCounted) {
    world.onHit(keyId)
    return counter.hit(keyId, (count, version, reply) => {
      world.onCounted(keyId, { count, nowMs: reply.nowMs, shared: reply.shared })
      onCounted(count, version, reply)
    })
  },
})

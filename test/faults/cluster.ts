// Processes of the service that count in one real Redis Cluster: its nodes, its slots, and a steady
// load on a few keys.
import type { Redis } from 'ioredis'
import type { Test } from 'tap'
import { type Sample, startLoad } from '../load.ts'
import { until } from '../process/until.ts'
import { type RedisCluster, startRedisCluster } from '../services/index.ts'
import type { RedisClusterOptions } from '../services/redis-cluster.ts'
import { type Answered, answeredOf, type Counted, countedOf } from './answers.ts'
import { type Fleet, type FleetKey, startFleet, verify } from './fleet.ts'

export interface ClusterFleet extends Fleet {
  readonly cluster: RedisCluster
}

/** Three instances on three masters. Null where there is no redis-server. */
export async function startClusterFleet(
  t: Test,
  options: Partial<RedisClusterOptions> = {},
): Promise<ClusterFleet | null> {
  const cluster = await startRedisCluster(t, { masters: 3, ...options })
  return cluster && { ...(await startFleet(t, cluster.urls.join(','), { each: [{}, {}, {}] })), cluster }
}

export const perSecond = 60

export interface Traffic<Name extends string> {
  /** Waits until each key has had this many more answers. */
  more(count?: number): Promise<void>
  /**
   * Stops sending. The answers by the names of the keys, and those of requests that need neither
   * Redis nor Postgres.
   */
  stop(): Promise<{ answers: Record<Name, (Sample & Answered)[]>; idle: Sample[] }>
}

/** A steady load on each key, over all instances. */
export function startTraffic<Name extends string>(
  t: Test,
  { urls }: Fleet,
  keys: Record<Name, FleetKey>,
): Traffic<Name> {
  const loads = Object.entries<FleetKey>(keys).map(
    ([name, { token }]) => [name, startLoad(t, { urls, tokens: [token], perSecond })] as const,
  )
  const idle = startLoad(t, { urls, tokens: ['none'], perSecond, path: '/docs/errors/unauthorized' })
  const answered = () => Math.min(...loads.map(([, load]) => load.samples.length))
  return {
    async more(count = 12) {
      const enough = answered() + count
      await until(`${count} more answers have come`, () => answered() >= enough)
    },
    async stop() {
      const stopped = await Promise.all(
        loads.map(async ([name, load]) => [name, answeredOf(await load.stop())]),
      )
      return { answers: Object.fromEntries(stopped), idle: await idle.stop() }
    },
  }
}

/** Requests with the key to every instance in turn, one after the other. */
export async function inTurn({ urls }: Fleet, { token }: FleetKey, count: number): Promise<Counted[]> {
  const answers: Counted[] = []
  for (let i = 0; i < count; i++) answers.push(countedOf(await verify(urls[i % urls.length]!, token)))
  return answers
}

/**
 * By how much the key's counter in Redis grows with this many requests: by as many, if they are
 * counted there and only there.
 */
export async function growthOf(fleet: Fleet, key: FleetKey, count: number): Promise<number> {
  for (;;) {
    const [{ resetS }] = (await inTurn(fleet, key, 1)) as [Counted]
    const before = await fleet.countIn(key.id, resetS)
    const answers = await inTurn(fleet, key, count)
    const after = await fleet.countIn(key.id, resetS)
    if (answers.every((answer) => answer.resetS === resetS)) return after! - before!
  }
}

/** Enough for the nodes to give one up, to vote, and to take one back. */
const boundMs = 30_000

const ask = (redis: Redis, ...words: string[]) =>
  redis.call('CLUSTER', ...(words as [string])).then(String, () => '')

/** Until every node except this one says something that fits. */
async function untilOthersSay(
  what: string,
  { redis }: RedisCluster,
  except: number | undefined,
  word: string,
  fits: RegExp,
) {
  const asked = redis.filter((_, node) => node !== except)
  const areAll = async () =>
    (await Promise.all(asked.map((one) => ask(one, word)))).every((text) => fits.test(text))
  await until(what, areAll, boundMs)
}

/** Until every node, or every one except this, says that the cluster serves all it should. */
export const untilOk = (cluster: RedisCluster, except?: number) =>
  untilOthersSay('the cluster is ok', cluster, except, 'INFO', /cluster_state:ok/)

/** Until every other node takes this one for lost. */
export const untilGivenUp = (cluster: RedisCluster, node: number) =>
  untilOthersSay(
    'the others have given it up',
    cluster,
    node,
    'NODES',
    new RegExp(`:${cluster.nodes[node]!.port}@\\S+ \\S*fail[, ]`),
  )

/** Until every other node knows another owner of the slot; gives which. */
export async function untilTakenOver(cluster: RedisCluster, slot: number, from: number): Promise<number> {
  const asked = [...cluster.nodes.keys()].filter((node) => node !== from)
  const newOwner = async () => {
    const [owner, ...others] = new Set(await Promise.all(asked.map((node) => cluster.ownerOf(slot, node))))
    return others.length === 0 && owner !== from && { owner: owner! }
  }
  return (await until('a replica has taken over', newOwner, boundMs)).owner
}

/** Until the node follows a master and has its copy. */
export async function untilFollowing({ redis }: RedisCluster, node: number): Promise<void> {
  const follows = async () => {
    const text = await redis[node]!.info('replication').catch(() => '')
    return /role:slave/.test(text) && /master_link_status:up/.test(text)
  }
  await until('it follows the new master', follows, boundMs)
}

/** The move of a slot to another node, step by step as `redis-cli --cluster reshard` does it. */
export interface SlotMove {
  readonly slot: number
  readonly to: number
  /** From now on the old node redirects requests for names that it does not have. */
  open(): Promise<void>
  /**
   * Moves the names that are there now, or only those that match. A name that the new node has
   * already is an error.
   */
  move(only?: RegExp): Promise<void>
  /** The new node has the slot; the others may not know it yet. */
  take(): Promise<void>
  /** Every node knows the new owner. */
  close(): Promise<void>
}

/** Names that `move` may be asked for. */
export const versions = /:v$/
export const counters = /:\d+$/

export async function moveSlot(
  { redis, nodes, ownerOf }: RedisCluster,
  slot: number,
  to: number,
): Promise<SlotMove> {
  const from = await ownerOf(slot)
  const source = redis[from]!
  const idOf = async (node: number) => String(await redis[node]!.call('CLUSTER', 'MYID'))
  const [sourceId, targetId] = [await idOf(from), await idOf(to)]
  const setSlot = (node: number, ...state: string[]) =>
    redis[node]!.call('CLUSTER', 'SETSLOT', String(slot), ...state)

  // In this order: the new node must take the names that the old one redirects.
  async function open() {
    await setSlot(to, 'IMPORTING', sourceId)
    await setSlot(from, 'MIGRATING', targetId)
  }
  async function move(only = /(?:)/) {
    const there = (await source.call('CLUSTER', 'GETKEYSINSLOT', String(slot), '1000')) as string[]
    const names = there.filter((name) => only.test(name))
    const address = ['127.0.0.1', String(nodes[to]!.port)]
    if (names.length > 0) await source.call('MIGRATE', ...address, '', '0', '5000', 'KEYS', ...names)
  }
  async function take() {
    await move()
    await setSlot(to, 'NODE', targetId)
  }
  async function close() {
    await take()
    for (const node of nodes.keys()) if (node !== to) await setSlot(node, 'NODE', targetId)
  }
  return { slot, to, open, move, take, close }
}

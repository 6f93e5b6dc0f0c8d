// A real Redis Cluster of redis-server processes: what a single server forgives (keys of two slots in one script), it refuses.
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { Redis, type RedisOptions } from 'ioredis'
import type { Test } from 'tap'
import type { Certificates } from './certificates.ts'
import { type PrivateRedis, startPrivateRedis } from './private-redis.ts'

export interface RedisCluster {
  /** One for each node: masters first, then their replicas, then those without slots. */
  readonly urls: string[]
  /** In the order of `urls`; may be killed and frozen one by one. A node restarted keeps its slots. */
  readonly nodes: PrivateRedis[]
  /** In the order of `urls`: connections to look with. Each comes back with its node. */
  readonly redis: Redis[]
  /** Which node has the slot, by the word of this one. */
  ownerOf(slot: number, asked?: number): Promise<number>
  /** The names that match on each master that answers, in the order of `urls`. */
  keys(pattern: string): Promise<string[][]>
}

export interface RedisClusterOptions {
  masters: number
  /** For each master. */
  replicas?: number
  /** Members without slots, as a cluster has them that is about to grow. */
  empty?: number
  /** Further arguments of every redis-server. */
  args?: string[]
  /** What every node asks of its clients and of the others. */
  password?: string
  /** The nodes then speak nothing but TLS, also with each other. */
  tls?: Certificates
}

const slots = 16_384
const readyMsMax = 120_000

/** Null where there is no redis-server, as startPrivateRedis. */
export async function startRedisCluster(
  t: Test,
  { masters, replicas = 0, empty = 0, args = [], password, tls }: RedisClusterOptions = { masters: 3 },
): Promise<RedisCluster | null> {
  const started: (PrivateRedis | null)[] = []
  for (let i = 0; i < masters * (1 + replicas) + empty; i++) {
    const redis = await startPrivateRedis(t, {
      // A node is noticed missing after 2 s instead of 15; a replica is given its copy at once instead of after 5.
      args: [
        ...['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000', '--repl-diskless-sync-delay', '0'],
        ...(password === undefined ? [] : ['--requirepass', password, '--masterauth', password]),
        ...args,
      ],
      ...(tls && { tls }),
    })
    if (!redis) return null
    started.push(redis)
  }
  const nodes = started.filter((node) => node !== null)
  const access: RedisOptions = {
    ...(password !== undefined && { password }),
    ...(tls && { tls: { ca: readFileSync(tls.authority), checkServerIdentity: () => undefined } }),
  }
  const connections = nodes.map(({ port }) => connectTo(t, { ...access, port }))
  await join(nodes, connections, masters, masters * replicas)
  return {
    urls: nodes.map(({ url }) => url),
    nodes,
    redis: connections,
    ownerOf: (slot, asked = 0) => ownerOf(nodes, connections[asked]!, slot),
    keys: (pattern) => Promise.all(connections.map((redis) => keysOn(redis, pattern))),
  }
}

/** Nothing is queued for a node that is away: it is asked again, or not at all. */
function connectTo(t: Test, access: RedisOptions): Redis {
  const options = { retryStrategy: () => 50, maxRetriesPerRequest: 0, disconnectTimeout: 100 }
  const redis = new Redis({ host: '127.0.0.1', ...options, ...(access as object) })
  redis.on('error', () => {})
  t.teardown(() => redis.disconnect())
  return redis
}

async function join(nodes: PrivateRedis[], connections: Redis[], masters: number, replicas: number) {
  const [first] = connections
  for (const [i, redis] of connections.entries()) {
    // Unlike epochs: else the nodes must first settle which of two claims is the later one.
    await redis.call('CLUSTER', 'SET-CONFIG-EPOCH', String(i + 1))
    if (i < masters) await redis.call('CLUSTER', 'ADDSLOTS', ...shareOf(i, masters))
  }
  for (const { port } of nodes.slice(1)) await first!.call('CLUSTER', 'MEET', '127.0.0.1', String(port))
  await untilEach(connections, async (redis) => (await info(redis)).includes(`known_nodes:${nodes.length}`))
  const following = connections.slice(masters, masters + replicas)
  for (const [i, replica] of following.entries()) {
    const master = String(await connections[i % masters]!.call('CLUSTER', 'MYID'))
    await replica.call('CLUSTER', 'REPLICATE', master)
  }
  // One that has no copy yet does not take over.
  await untilEach(following, async (redis) =>
    (await redis.info('replication')).includes('master_link_status:up'),
  )
  await untilEach(connections, async (redis) => {
    const text = await info(redis)
    return text.includes('cluster_state:ok') && text.includes(`cluster_slots_ok:${slots}`)
  })
}

const info = async (redis: Redis) => String(await redis.call('CLUSTER', 'INFO'))

async function ownerOf(nodes: PrivateRedis[], asked: Redis, slot: number): Promise<number> {
  type Range = [from: number, to: number, master: [host: string, port: number]]
  const ranges = (await asked.call('CLUSTER', 'SLOTS')) as Range[]
  const range = ranges.find(([from, to]) => from <= slot && slot <= to)
  return nodes.findIndex(({ port }) => port === range?.[2][1])
}

async function keysOn(redis: Redis, pattern: string): Promise<string[]> {
  if (redis.status !== 'ready') return []
  const [role] = (await redis.call('ROLE')) as string[]
  return role === 'master' ? redis.keys(pattern) : []
}

function shareOf(master: number, masters: number): string[] {
  const from = Math.floor((slots * master) / masters)
  const to = Math.floor((slots * (master + 1)) / masters)
  return Array.from({ length: to - from }, (_, i) => String(from + i))
}

async function untilEach(connections: Redis[], holds: (redis: Redis) => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + readyMsMax
  for (const redis of connections) {
    while (!(await holds(redis))) {
      if (Date.now() > deadline) throw new Error(`the Redis Cluster did not form:\n${await info(redis)}`)
      await pause(20)
    }
  }
}

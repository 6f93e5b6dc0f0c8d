// A real Redis Cluster of redis-server processes: it refuses what a single server allows, such as
// keys of two slots in one script.
import { readFileSync } from 'node:fs'
import { Redis, type RedisOptions } from 'ioredis'
import type { Test } from 'tap'
import { until } from '../process/until.ts'
import type { Certificates } from './certificates.ts'
import { type PrivateRedis, startPrivateRedis } from './redis.ts'

export interface RedisCluster {
  /** One for each node: masters first, then their replicas, then those without slots. */
  readonly urls: string[]
  /** In the order of `urls`. A restarted node keeps its slots. */
  readonly nodes: PrivateRedis[]
  /** In the order of `urls`: the test's own connections. Each comes back with its node. */
  readonly redis: Redis[]
  /** Which node has the slot, according to this one. */
  ownerOf(slot: number, asked?: number): Promise<number>
  /** The matching names on each master that answers, in the order of `urls`. */
  keys(pattern: string): Promise<string[][]>
}

export interface RedisClusterOptions {
  masters: number
  /** For each master. */
  replicas?: number
  /** Members without slots, as in a cluster that is about to grow. */
  empty?: number
  /** Further arguments of every redis-server. */
  args?: string[]
  /** For clients and between the nodes. */
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
  const nodes: PrivateRedis[] = []
  for (let i = 0; i < masters * (1 + replicas) + empty; i++) {
    const node = await startPrivateRedis(t, {
      args: [
        // A lost node is noticed after 2 s instead of 15; a replica gets its copy at once instead
        // of after 5 s.
        ...['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000', '--repl-diskless-sync-delay', '0'],
        ...(password === undefined ? [] : ['--requirepass', password, '--masterauth', password]),
        ...args,
      ],
      ...(tls && { tls }),
    })
    if (!node) return null
    nodes.push(node)
  }
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
    async ownerOf(slot, asked = 0) {
      type Range = [from: number, to: number, master: [host: string, port: number]]
      const ranges = (await connections[asked]!.call('CLUSTER', 'SLOTS')) as Range[]
      const range = ranges.find(([from, to]) => from <= slot && slot <= to)
      return nodes.findIndex(({ port }) => port === range?.[2][1])
    },
    keys: (pattern) => Promise.all(connections.map((redis) => keysOn(redis, pattern))),
  }
}

/** Queues nothing for a node that is down. */
function connectTo(t: Test, access: RedisOptions): Redis {
  const options = { retryStrategy: () => 50, maxRetriesPerRequest: 0, disconnectTimeout: 100 }
  const redis = new Redis({ host: '127.0.0.1', ...options, ...(access as object) })
  redis.on('error', () => {})
  t.teardown(() => redis.disconnect())
  return redis
}

async function join(nodes: PrivateRedis[], connections: Redis[], masters: number, replicas: number) {
  for (const [i, redis] of connections.entries()) {
    // Distinct epochs: otherwise the nodes must first settle which of two claims is the later one.
    await redis.call('CLUSTER', 'SET-CONFIG-EPOCH', String(i + 1))
    if (i >= masters) continue
    const [from, to] = [i, i + 1].map((n) => Math.floor((slots * n) / masters)) as [number, number]
    const share = Array.from({ length: to - from }, (_, n) => String(from + n))
    await redis.call('CLUSTER', 'ADDSLOTS', ...share)
  }
  for (const { port } of nodes.slice(1))
    await connections[0]!.call('CLUSTER', 'MEET', '127.0.0.1', String(port))
  const untilAll = (
    asked: Redis[],
    what: string,
    look: (redis: Redis) => Promise<unknown>,
    ...words: string[]
  ) =>
    until(
      what,
      async () => {
        const said = (await Promise.all(asked.map(look))).map(String)
        return said.every((text) => words.every((word) => text.includes(word)))
      },
      readyMsMax,
    )
  const info = (redis: Redis) => redis.call('CLUSTER', 'INFO')
  await untilAll(connections, 'the nodes know each other', info, `known_nodes:${nodes.length}`)
  const following = connections.slice(masters, masters + replicas)
  for (const [i, replica] of following.entries()) {
    const master = String(await connections[i % masters]!.call('CLUSTER', 'MYID'))
    // A node that it has just met goes by a temporary id for a moment.
    const follow = () => replica.call('CLUSTER', 'REPLICATE', master).catch(() => false)
    await until('the replica follows its master', follow, readyMsMax)
  }
  // A replica without a copy does not take over.
  const replication = (redis: Redis) => redis.info('replication')
  await untilAll(following, 'the replicas have a copy', replication, 'master_link_status:up')
  await untilAll(connections, 'the cluster serves every slot', info, 'cluster_state:ok', `slots_ok:${slots}`)
}

async function keysOn(redis: Redis, pattern: string): Promise<string[]> {
  if (redis.status !== 'ready') return []
  const [role] = (await redis.call('ROLE')) as string[]
  return role === 'master' ? redis.keys(pattern) : []
}

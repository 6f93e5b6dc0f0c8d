// A real Redis Cluster of redis-server processes: what a single server forgives (keys of two slots in one script), it refuses.
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { Test } from 'tap'
import { type PrivateRedis, startPrivateRedis } from './private-redis.ts'

export interface RedisCluster {
  /** One for each node, masters first. */
  readonly urls: string[]
  /** In the order of `urls`; may be killed and frozen one by one. A node restarted keeps its slots. */
  readonly nodes: PrivateRedis[]
}

const slots = 16_384
const readyMsMax = 30_000

/** Null where there is no redis-server, as startPrivateRedis. `replicas`: for each master. */
export async function startRedisCluster(
  t: Test,
  { masters, replicas = 0 }: { masters: number; replicas?: number } = { masters: 3 },
): Promise<RedisCluster | null> {
  const started: (PrivateRedis | null)[] = []
  for (let i = 0; i < masters * (1 + replicas); i++) {
    const redis = await startPrivateRedis(t, {
      // A node is noticed missing after 2 s instead of 15.
      args: ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000'],
    })
    if (!redis) return null
    started.push(redis)
  }
  const nodes = started.filter((node) => node !== null)
  const connections = nodes.map(({ url }) => new Redis(url))
  try {
    await join(nodes, connections, masters)
  } finally {
    for (const redis of connections) redis.disconnect()
  }
  return { urls: nodes.map(({ url }) => url), nodes }
}

async function join(nodes: PrivateRedis[], connections: Redis[], masters: number): Promise<void> {
  const [first, ...others] = connections
  for (const [i, redis] of connections.entries()) {
    // Unlike epochs: else the nodes must first settle which of two claims is the later one.
    await redis.call('CLUSTER', 'SET-CONFIG-EPOCH', String(i + 1))
    if (i < masters) await redis.call('CLUSTER', 'ADDSLOTS', ...shareOf(i, masters))
  }
  for (const { port } of nodes.slice(1)) await first!.call('CLUSTER', 'MEET', '127.0.0.1', String(port))
  await untilEach(connections, async (redis) => (await info(redis)).includes(`known_nodes:${nodes.length}`))
  for (const [i, replica] of others.slice(masters - 1).entries()) {
    const master = String(await connections[i % masters]!.call('CLUSTER', 'MYID'))
    await replica.call('CLUSTER', 'REPLICATE', master)
  }
  await untilEach(connections, async (redis) => {
    const text = await info(redis)
    return text.includes('cluster_state:ok') && text.includes(`cluster_slots_ok:${slots}`)
  })
}

const info = async (redis: Redis) => String(await redis.call('CLUSTER', 'INFO'))

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

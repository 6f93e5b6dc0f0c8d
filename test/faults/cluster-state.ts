// What the nodes of a cluster say of it, to wait for.
import type { Redis } from 'ioredis'
import { until } from '../process/until.ts'
import type { RedisCluster } from '../services/index.ts'

/** Long enough for the nodes to give one up, to vote, and to take one back. */
const boundMs = 30_000

const say = (redis: Redis, ...words: string[]) =>
  redis.call('CLUSTER', ...(words as [string])).then(String, () => '')

/** Until every node, or every other one than this, says that the cluster serves all it should. */
export async function untilOk({ redis }: RedisCluster, without?: number): Promise<void> {
  const asked = redis.filter((_, node) => node !== without)
  const isOk = async (one: Redis) => /cluster_state:ok/.test(await say(one, 'INFO'))
  await until('the cluster is ok', async () => (await Promise.all(asked.map(isOk))).every(Boolean), boundMs)
}

/** Until every other node takes this one for lost. */
export async function untilGivenUp({ redis, nodes }: RedisCluster, node: number): Promise<void> {
  const asked = redis.filter((_, other) => other !== node)
  const lost = new RegExp(`:${nodes[node]!.port}@\\S+ \\S*fail[, ]`)
  const isLost = async (one: Redis) => lost.test(await say(one, 'NODES'))
  await until(
    'the others have given it up',
    async () => (await Promise.all(asked.map(isLost))).every(Boolean),
    boundMs,
  )
}

/** Until every other node knows another owner of the slot; gives which. */
export async function untilTakenOver(cluster: RedisCluster, slot: number, from: number): Promise<number> {
  const asked = [...cluster.nodes.keys()].filter((node) => node !== from)
  return until(
    'a replica has taken over',
    async () => {
      const owners = new Set(await Promise.all(asked.map((node) => cluster.ownerOf(slot, node))))
      const [owner] = owners
      return owners.size === 1 && owner !== from && `${owner}`
    },
    boundMs,
  ).then(Number)
}

/** Until the node follows a master and has its copy. */
export async function untilFollowing({ redis }: RedisCluster, node: number): Promise<void> {
  const follows = async () => {
    const text = await redis[node]!.info('replication').catch(() => '')
    return /role:slave/.test(text) && /master_link_status:up/.test(text)
  }
  await until('it follows the new master', follows, boundMs)
}

/**
 * Counts in Redis, so that all instances share one count; while a server is away this instance counts on by itself. One
 * server, or a cluster: then each key is counted by the node that has its slot, and only the keys of a node that is away are
 * counted locally.
 */
import slotOf from 'cluster-key-slot'
import { Cluster, type Redis } from 'ioredis'
import { createMinuteCounts } from '../memory/minute-counts.ts'
import type { Counter } from '../stores.ts'
import { loadScripts } from './scripts.ts'
import { createShard, type Mode, type Shard } from './shard.ts'
import { withTimeout } from './with-timeout.ts'

export interface RedisCounterOptions {
  client: Redis | Cluster
  /** Once for each change of a server's mode, with the reason. */
  onMode?: (mode: Mode, reason: string) => void
  onBatch?: (hits: number, keys: number) => void
  now?: () => number
  /** How many times longer than usual to wait for Redis. */
  patience?: number
}

const answerTimeoutMs = 100
const raiseTimeoutMs = 500
const raiseAtOnce = 500
/** Longer than any instance believes a cached copy (60 s at most, see gate.ts). sql/redis/hit.lua has it too. */
const versionTtlS = 600

export function createRedisCounter(options: RedisCounterOptions): Counter {
  const { client, onMode = () => {}, onBatch, now = Date.now, patience = 1 } = options
  const scripts = loadScripts(client)
  const lastCounts = createMinuteCounts()
  const cluster = client instanceof Cluster ? client : null
  const shards = new Map<string, Shard>()

  function shard(node: string): Shard {
    let found = shards.get(node)
    if (found === undefined) {
      found = createShard({
        scripts,
        lastCounts,
        groupOf: cluster ? (keyId) => keyId : () => '',
        isConnected: () => client.status === 'ready',
        locate: () => cluster?.refreshSlotsCache(),
        // A cluster's client replaces the connections of its nodes by itself.
        reconnect() {
          if (!cluster) client.disconnect(true)
        },
        onMode: (mode, reason) => onMode(mode, node === '' ? reason : `${node}: ${reason}`),
        onBatch,
        now,
        answerTimeoutMs: answerTimeoutMs * patience,
      })
      shards.set(node, found)
    }
    return found
  }

  /** The node that has the key's slot; "" where there is only one server. The id is the hash tag, so its slot is the key's. */
  const nodeOf = (keyId: string): string =>
    cluster === null ? '' : ((cluster as unknown as { slots: string[][] }).slots[slotOf(keyId)]?.[0] ?? '')

  const single = cluster === null ? shard('') : null
  const shardOf = (keyId: string) => single ?? shard(nodeOf(keyId))

  client.on('close', () => {
    for (const one of shards.values()) one.goLocal('the connection is closed')
  })
  if (client.status !== 'ready') shard('').goLocal('not connected yet')

  return {
    get mode() {
      for (const { mode } of shards.values()) if (mode === 'local') return 'local'
      return 'shared'
    },
    hit: (keyId, onCounted) => shardOf(keyId).hit(keyId, onCounted),
    async raise(versions) {
      try {
        for (let i = 0; i < versions.length; i += raiseAtOnce) {
          const raised = versions
            .slice(i, i + raiseAtOnce)
            .map(({ keyId, version }) => scripts.raiseVersion(keyId, version, versionTtlS))
          await withTimeout(Promise.all(raised), raiseTimeoutMs * patience)
        }
        return true
      } catch {
        return false
      }
    },
    async close() {
      for (const one of shards.values()) one.close()
      client.disconnect()
    },
  }
}

/**
 * Counts in Redis, so that all instances share one count. In a cluster, the node that has a key's
 * slot counts it. While a server is down, this instance counts its keys locally.
 */
import { Cluster, type Redis } from 'ioredis'
import { createMinuteCounts, type MinuteCounts } from '../memory/minute-counts.ts'
import type { Counter, Outage } from '../stores.ts'
import { loadScripts } from './scripts.ts'
import { watchServers } from './servers.ts'
import { createShard, type Shard } from './shard.ts'
import { withTimeout } from './with-timeout.ts'

export interface RedisCounterOptions {
  client: Redis | Cluster
  lastCounts?: MinuteCounts
  /**
   * A server does not count, or, with null, counts again. Called again if the outage turns out to
   * have another cause that lasts.
   */
  onOutage?: (outage: Outage | null) => void
  onBatch?: (hits: number, keys: number) => void
  now?: () => number
  /** How many times longer than usual to wait for Redis. */
  patience?: number
}

const answerTimeoutMs = 100
const raiseTimeoutMs = 500
const raiseAtOnce = 500
/**
 * Longer than any instance trusts a cached key (60 s at most, see decide.ts). sql/redis/hit.lua has
 * it too.
 */
const versionTtlS = 600

export function createRedisCounter(options: RedisCounterOptions): Counter {
  const {
    client,
    lastCounts = createMinuteCounts(),
    onOutage = () => {},
    onBatch,
    now = Date.now,
    patience = 1,
  } = options
  const scripts = loadScripts(client)
  const isCluster = client instanceof Cluster
  const shards = new Map<string, Shard>()
  const servers = watchServers(client, {
    onMasters: followMasters,
    onLost: (server) => shards.get(server)?.goLocal(new Error('not connected')),
  })

  function shard(server: string): Shard {
    let found = shards.get(server)
    if (found === undefined) {
      found = createShard({
        scripts,
        lastCounts,
        groupOf: isCluster ? (keyId) => keyId : () => '',
        fault: () => servers.fault(server),
        probe: () => scripts.probe(servers.idOn(server)),
        locate() {
          if (isCluster) client.refreshSlotsCache()
        },
        // The client of a cluster replaces the connections to its nodes by itself.
        reconnect() {
          if (!isCluster) client.disconnect(true)
        },
        onOutage(outage) {
          const where = server === '' ? '' : `${server}: `
          onOutage(outage && { ...outage, reason: where + outage.reason })
          if (outage === null) followMasters()
        },
        onBatch,
        now,
        answerTimeoutMs: answerTimeoutMs * patience,
      })
      shards.set(server, found)
    }
    return found
  }

  /**
   * Keeps a shard for each master, even before its first hit. A former master's shard stays until
   * its outage has ended.
   */
  function followMasters() {
    const masters = servers.masters()
    for (const [server, one] of shards) {
      if (masters.has(server) || one.outage !== null) continue
      one.close()
      shards.delete(server)
    }
    for (const server of masters) shard(server)
  }

  followMasters()
  const single = isCluster ? null : shard('')
  const shardOf = (keyId: string) => single ?? shard(servers.serverOf(keyId))

  return {
    get mode() {
      for (const { isShared } of shards.values()) if (!isShared) return 'local'
      return 'shared'
    },
    get outages() {
      return [...shards.values()].flatMap(({ outage }) => outage ?? [])
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

/**
 * Counts in Redis, so that all instances share one count. In a cluster, the node that has a key's
 * slot counts it. While a server is down, this instance counts its keys locally.
 */
import { createMinuteCounts } from '../memory/minute-counts.ts'
import { minuteOf } from '../rules/window.ts'
import type { Counter, Outage } from '../stores.ts'
import { Cluster, type Redis } from './ioredis.ts'
import { readCounters } from './read-counters.ts'
import { loadScripts, type Read } from './scripts.ts'
import { notConnected, watchServers } from './servers.ts'
import { createShard, type Shard } from './shard.ts'
import { answerTimeoutMs, withTimeout } from './with-timeout.ts'

export interface RedisCounterOptions {
  client: Redis | Cluster
  /**
   * Called when a server stops counting, and with null when it counts again. Called again if the
   * outage turns out to have another cause that lasts.
   */
  onOutage?: ((outage: Outage | null) => void) | undefined
  /**
   * Another server answers from now on, or the same one after an outage. It may have older data: a
   * replica that was promoted, or a snapshot. Also called when our monotonic clock has stood still: what
   * was read before is older than it seems.
   */
  onOtherServer?: (() => void) | undefined
  onBatch?: ((hits: number, keys: number) => void) | undefined
  /** How many seconds a call took until it was answered, failed or timed out. */
  onCall?: ((call: 'count' | 'publish', seconds: number) => void) | undefined
  /** A scan has read this many more counters. */
  onScanned?: ((counters: number) => void) | undefined
  now?: () => number
  /** How many times longer than usual to wait for Redis. */
  patience?: number
}

const raiseTimeoutMs = 500
const raiseAtOnce = 500
/** As many as a look-up may read. All of them keep Redis busy for about a millisecond. */
const confirmAtOnce = 500

export function createRedisCounter(options: RedisCounterOptions): Counter {
  const {
    client,
    onOutage = () => {},
    onOtherServer = () => {},
    onBatch,
    onCall,
    onScanned,
    now = Date.now,
    patience = 1,
  } = options
  const lastCounts = createMinuteCounts()
  const scripts = loadScripts(client)
  const isCluster = client instanceof Cluster
  /** Keys with a confirmation in flight: the other requests that read the key need not send one. */
  const confirming = new Set<string>()
  /** Reads to confirm: those of one look-up share a call. */
  const toConfirm: Read[] = []
  const shards = new Map<string, Shard>()
  const servers = watchServers(client, {
    onMasters: followMasters,
    onLost: (server) => shards.get(server)?.goLocal(notConnected()),
  })

  function shard(server: string): Shard {
    let found = shards.get(server)
    if (found === undefined) {
      found = createShard({
        scripts: isCluster ? { ...scripts, hit: hitFollowing } : scripts,
        lastCounts,
        groupOf: isCluster ? (keyId) => keyId : () => '',
        fault: () => servers.fault(server),
        probe: () => scripts.probe(servers.idOn(server)),
        locate() {
          if (isCluster) locateMasters(client)
        },
        // The client of a cluster replaces the connection to a node once it has ended.
        reconnect() {
          if (isCluster) servers.connection(server)?.disconnect()
          else client.disconnect(true)
        },
        onOutage(outage) {
          const where = server === '' ? '' : `${server}: `
          onOutage(outage && { ...outage, reason: where + outage.reason })
          if (outage !== null) return
          lastCounts.markIncomplete(minuteOf(shard(server).nowMs()))
          onOtherServer()
        },
        onBatch,
        onCall: (seconds) => onCall?.('count', seconds),
        onStandstill: onOtherServer,
        now,
        answerTimeoutMs: answerTimeoutMs * patience,
      })
      shards.set(server, found)
      onOtherServer()
    }
    return found
  }

  /**
   * A node that is no longer the master redirects the client, so another one may have answered.
   * Notice before the reply is used.
   */
  async function hitFollowing(keyIds: string[], sums: number[], lastMinute: number) {
    const reply = await scripts.hit(keyIds, sums, lastMinute)
    shard(servers.serverOf(keyIds[0]!))
    return reply
  }

  /**
   * Keeps a shard for each master, even before its first hit. A former master's shard stays until
   * its outage has ended.
   */
  function followMasters() {
    const masters = servers.masters()
    for (const [server, one] of shards) {
      if (masters.has(server) || one.server.outage !== null) continue
      one.close()
      shards.delete(server)
    }
    for (const server of masters) shard(server)
  }

  /**
   * If no known node answers, all may have moved: start over with those in REDIS_URL. ioredis does so
   * only when every connection has ended, and that to a silent replica may stay open.
   */
  function locateMasters(cluster: Cluster) {
    cluster.refreshSlotsCache((error) => {
      const anyCounts = [...shards.values()].some(({ server }) => server.mode === 'shared')
      if (error && !anyCounts && cluster.status === 'ready') cluster.disconnect(true)
    })
  }

  function confirmAll() {
    while (toConfirm.length > 0) {
      const some = toConfirm.splice(0, isCluster ? 1 : confirmAtOnce)
      const settled = () => {
        for (const { keyId } of some) confirming.delete(keyId)
      }
      scripts.confirmVersions(some).then(settled, settled)
    }
  }

  followMasters()
  const single = isCluster ? null : shard('')
  const shardOf = (keyId: string) => single ?? shard(servers.serverOf(keyId))

  return {
    mode: () => ([...shards.values()].every(({ server }) => server.mode === 'shared') ? 'shared' : 'local'),
    outages: () =>
      [...shards].flatMap(([name, { server }]) =>
        server.outage === null ? [] : name === '' ? server.outage : { ...server.outage, server: name },
      ),
    hit: (keyId, onCounted) => shardOf(keyId).hit(keyId, onCounted),
    async raise(versions) {
      const startMs = performance.now()
      try {
        for (let i = 0; i < versions.length; i += raiseAtOnce) {
          const raised = versions
            .slice(i, i + raiseAtOnce)
            .map(({ keyId, version }) => scripts.raiseVersion(keyId, version))
          await withTimeout(Promise.all(raised), raiseTimeoutMs * patience)
        }
        return true
      } catch {
        // Hits may go on meanwhile, or there are none, so nothing else would find out why.
        for (const { keyId } of versions) shardOf(keyId).doubt()
        return false
      } finally {
        onCall?.('publish', (performance.now() - startMs) / 1000)
      }
    },
    confirm({ keyId, version }, lease) {
      if (confirming.has(keyId)) return
      confirming.add(keyId)
      if (toConfirm.push({ keyId, lease, version }) === 1) queueMicrotask(confirmAll)
    },
    ...readCounters({ client, servers, shards, shardOf, lastCounts, patience, onScanned }),
    known: lastCounts.of,
    takeHits: lastCounts.takeHits,
    mayLackCounts: lastCounts.mayLackCounts,
    async close() {
      for (const one of shards.values()) one.close()
      client.disconnect()
    },
  }
}

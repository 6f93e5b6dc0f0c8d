/** Reads counters without counting: from the servers that count, else what this instance knows. */
import { type MinuteCounts, visitCounts } from '../memory/minute-counts.ts'
import type { Counter, Outage, VisitCounts } from '../stores.ts'
import { Cluster, type Redis } from './ioredis.ts'
import { outageOf } from './outage.ts'
import { millisOf, scanServer } from './scan-server.ts'
import { counterKey } from './scripts.ts'
import { notConnected, type Servers } from './servers.ts'
import type { Shard } from './shard.ts'
import { readWhileMoving } from './slot-moves.ts'
import { answerTimeoutMs, withTimeout } from './with-timeout.ts'

interface ReadCountersOptions {
  client: Redis | Cluster
  servers: Servers
  /** By server. */
  shards: ReadonlyMap<string, Shard>
  shardOf: (keyId: string) => Shard
  lastCounts: MinuteCounts
  /** How many times longer than usual to wait for Redis. */
  patience: number
  onScanned?: ((counters: number) => void) | undefined
}

/** For one slice of a scan. */
const sliceTimeoutMs = 1000
const shareDefault = 0.05

export function readCounters(options: ReadCountersOptions): Pick<Counter, 'scan' | 'countsOf' | 'now'> {
  const { client, servers, shards, shardOf, lastCounts, patience, onScanned } = options

  const stored = async (keyIds: string[], minutes: number[]) =>
    (await client.mget(namesOf(keyIds, minutes))).map(countIn)

  const scan: Counter['scan'] = async (minute, visit, { share = shareDefault, signal, above } = {}) => {
    let scanned = 0
    let fault: Outage | null = null
    const known = lastCounts.of(minute)
    let confirmed = 0
    const unread = new Set<Shard>()
    const settings = {
      minute,
      share,
      signal,
      above,
      timeoutMs: sliceTimeoutMs * patience,
      // MGET returns nothing for a value that is not a string.
      readAlone: async (keyId: string) => (await stored([keyId], [minute]))[0]!,
      visit: ((counts, read) => {
        scanned += read
        onScanned?.(read)
        for (const { keyId, count } of counts) if (count >= (known.get(keyId) ?? Infinity)) confirmed++
        return visit(counts, read)
      }) satisfies VisitCounts,
    }
    const scanOne = async ([server, shard]: [string, Shard]) => {
      const redis = shard.server.mode === 'shared' ? servers.connection(server) : undefined
      const error = redis ? await scanServer(redis, settings) : (servers.fault(server) ?? notConnected())
      if (error === null) return
      unread.add(shard)
      fault ??= shard.server.outage ?? outageOf(error)
    }
    async function scanAll() {
      confirmed = 0
      await Promise.all([...shards].map(scanOne))
      return unread.size === 0 && !signal?.aborted
    }
    // A ranking (`above`) is scanned again soon anyway.
    const isWhole =
      client instanceof Cluster && above === undefined
        ? await readWhileMoving({
            cluster: client,
            masters: servers.masters,
            timeoutMs: settings.timeoutMs,
            pass: scanAll,
          })
        : await scanAll()
    const isLocal = unread.size > 0
    const isUnread = (keyId: string) => unread.has(shardOf(keyId))
    const visitKnown = (isWanted: (keyId: string) => boolean) =>
      visitCounts(known, visit, { isWanted, signal, above })
    if (isLocal) scanned += await visitKnown(isUnread)
    // Redis has been read, but this instance may know higher counts. No hit notices what Redis loses
    // once the minute is over, so the counts are compared here.
    const isLost = above === undefined && confirmed < known.size
    if (lastCounts.mayLackCounts(minute) || isLost) await visitKnown((keyId) => !isUnread(keyId))
    return { complete: isWhole && !signal?.aborted, scanned, mode: isLocal ? 'local' : 'shared', fault }
  }

  /** What the server says, or if it does not count, what this instance knows. */
  async function ask<T>(shard: Shard, command: () => Promise<T>, known: () => T) {
    try {
      if (shard.server.mode !== 'shared') throw notConnected()
      return { value: await withTimeout(command(), answerTimeoutMs * patience), mode: 'shared' as const }
    } catch {
      // Without requests, nothing else would find out.
      shard.doubt()
      return { value: known(), mode: 'local' as const }
    }
  }

  /** The keys are all on one server. */
  async function readAtOnce(keyIds: string[], minutes: number[]) {
    const known = keyIds.flatMap((keyId) => minutes.map((minute) => lastCounts.of(minute).get(keyId) ?? 0))
    const { value, mode } = await ask(
      shardOf(keyIds[0]!),
      () => stored(keyIds, minutes),
      () => [],
    )
    // A Redis that has lost its data starts over, but this instance goes on from what it has seen.
    return { counts: known.map((count, i) => Math.max(count, value[i] ?? 0)), mode }
  }

  return {
    scan,
    async countsOf(keyIds, minutes) {
      // Each key of a cluster is in a slot of its own, and one call reads one slot.
      const calls = client instanceof Cluster ? keyIds.map((keyId) => [keyId]) : [keyIds]
      const read = await Promise.all(calls.map((keyIds) => readAtOnce(keyIds, minutes)))
      return {
        counts: read.flatMap(({ counts }) => counts),
        mode: read.every(({ mode }) => mode === 'shared') ? 'shared' : 'local',
      }
    },
    async now() {
      const clocks = [...shards].map(async ([server, shard]) => {
        const clock = async () => Math.floor(millisOf(await servers.connection(server)!.time()))
        return (await ask(shard, clock, shard.nowMs)).value
      })
      return Math.min(...(await Promise.all(clocks)))
    },
  }
}

const namesOf = (keyIds: string[], minutes: number[]) =>
  keyIds.flatMap((keyId) => minutes.map((minute) => counterKey(keyId, minute)))

/** A count as stored; null if it is absent, or not a counter of ours. */
const countIn = (value: string | null): number | null =>
  value !== null && /^\d{1,15}$/.test(value) ? Number(value) : null

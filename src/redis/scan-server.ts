/**
 * Reads the counters of one minute from one server. SCAN finds them in slices that keep the server
 * for about a millisecond. Between slices the reader waits, so that it uses no more than its share
 * of the server's one core. TIME before and after each slice says how long the server took; a
 * server that is busy with others makes a slice longer, and so the reader slower.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { idOrNone } from '../rules/id.ts'
import type { KeyCount } from '../stores.ts'
import { counterKey } from './scripts.ts'
import { withTimeout } from './with-timeout.ts'

export interface ServerScan {
  minute: number
  /** Of one core of the server. */
  share: number
  signal: AbortSignal | undefined
  timeoutMs: number
  /** Waits for each visit before it reads on. */
  visit: (slice: KeyCount[]) => void | Promise<void>
  /**
   * Set in a cluster, where a node takes no MGET on several slots. Reads a counter that its own
   * node refuses, because its slot is moving.
   */
  readElsewhere: ((name: string) => Promise<string | null>) | null
}

/** Names looked at in one SCAN. */
const sliceNames = 500

type Reply = [error: Error | null, value: unknown]

/**
 * Resolves to null at the end or at the signal, and to the server's error if it fails. Rejects if a
 * visit does.
 */
export async function scanServer(redis: Redis, options: ServerScan): Promise<Error | null> {
  const { share, signal, timeoutMs, visit } = options
  let slice: Slice = { counts: [], cursor: '0', names: [], usedMs: 0 }
  while (!signal?.aborted) {
    const startedMs = performance.now()
    try {
      slice = await withTimeout(readSlice(redis, slice, options), timeoutMs)
    } catch (error) {
      return error as Error
    }
    if (signal?.aborted) break
    if (slice.counts.length > 0) await visit(slice.counts)
    if (slice.cursor === null && slice.names.length === 0) break
    const elapsedMs = performance.now() - startedMs
    const waitMs = Math.min(slice.usedMs, elapsedMs) / share - elapsedMs
    await sleep(Math.max(waitMs, 0), undefined, { signal }).catch(() => {})
  }
  return null
}

/** `cursor`: null if there are no more names. `names`: found, but not read yet. */
interface Slice {
  counts: KeyCount[]
  cursor: string | null
  names: string[]
  /** How long the server took. */
  usedMs: number
}

/** Reads the values of the names found last, and in the same round trip finds the next names. */
async function readSlice(redis: Redis, { cursor, names }: Slice, { minute, readElsewhere }: ServerScan) {
  const reads = readsOf(names, readElsewhere !== null)
  const pattern = counterKey('apk_*', minute)
  const scan = cursor === null ? [] : [['scan', cursor, 'MATCH', pattern, 'COUNT', sliceNames]]
  const sent = redis.pipeline([['time'], ...reads, ...scan, ['time']]).exec()
  const replies = (await sent) as Reply[]
  const values = await valuesOf(names, replies.slice(1, 1 + reads.length), readElsewhere)
  const [next, found] = scan.length === 0 ? ['0', []] : (replyOf(replies.at(-2)!) as [string, string[]])
  return {
    counts: toCounts(names, values, minute),
    cursor: next === '0' ? null : next,
    names: found,
    usedMs: timeOf(replies.at(-1)!) - timeOf(replies[0]!),
  }
}

function readsOf(names: string[], isNode: boolean): string[][] {
  if (names.length === 0) return []
  return isNode ? names.map((name) => ['get', name]) : [['mget', ...names]]
}

async function valuesOf(names: string[], replies: Reply[], readElsewhere: ServerScan['readElsewhere']) {
  if (readElsewhere === null) return replies.flatMap((reply) => replyOf(reply) as (string | null)[])
  const values = replies.map(([error, value], i) => {
    if (error === null) return value as string | null
    // MGET returns nothing for a value that is not a string.
    return /^WRONGTYPE/.test(error.message) ? null : readElsewhere(names[i]!)
  })
  return Promise.all(values)
}

function replyOf([error, value]: Reply): unknown {
  if (error) throw error
  return value
}

/** Milliseconds, of the server's clock. */
function timeOf(reply: Reply): number {
  const [seconds, micros] = replyOf(reply) as [string, string]
  return Number(seconds) * 1000 + Number(micros) / 1000
}

/** A count as stored; null if it is absent, or not a counter of ours. */
export const countIn = (value: string | null): number | null =>
  value !== null && /^\d{1,15}$/.test(value) ? Number(value) : null

function toCounts(names: string[], values: (string | null)[], minute: number): KeyCount[] {
  const [before, after] = counterKey('|', minute).split('|') as [string, string]
  return names.flatMap((name, i) => {
    const keyId = idOrNone('apk_', name.slice(before.length, -after.length))
    const count = countIn(values[i]!)
    return keyId !== '' && count !== null ? { keyId, count } : []
  })
}

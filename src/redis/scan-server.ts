/**
 * Reads the counters of one minute from one server, in slices that occupy the server for less
 * than a millisecond. Between slices the reader waits, so that it uses no more than its share of the
 * server's one core. TIME before and after each slice says how long the server took; a server that
 * is busy with others makes a slice longer, and so the reader slower.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { KeyCount, ScanOptions, VisitCounts } from '../stores.ts'
import { sources } from './scripts.ts'
import { withTimeout } from './with-timeout.ts'

interface ServerScan extends ScanOptions {
  minute: number
  share: NonNullable<ScanOptions['share']>
  timeoutMs: number
  /** Waits for each visit before it reads on. */
  visit: VisitCounts
  /** For a counter that this server refuses: one that has moved, or is not a string. */
  readAlone: (keyId: string) => Promise<number | null>
}

/**
 * Names looked at in one slice; hits wait until the server is done with it. With 200, this process
 * would spend twice as much time on sending and reading slices.
 */
const sliceNames = 400

/**
 * Resolves to null at the end or at the signal, and to the server's error if it fails. Rejects if a
 * visit does.
 */
export async function scanServer(redis: Redis, options: ServerScan): Promise<Error | null> {
  const { share, signal, timeoutMs, visit } = options
  let cursor = '0'
  while (!signal?.aborted) {
    const startedMs = performance.now()
    let slice: Slice
    try {
      slice = await withTimeout(readSlice(redis, cursor, options), timeoutMs)
    } catch (error) {
      return error as Error
    }
    if (signal?.aborted) break
    if (slice.read > 0) await visit(slice.counts, slice.read)
    cursor = slice.cursor
    if (cursor === '0') break
    const elapsedMs = performance.now() - startedMs
    const shareNow = typeof share === 'number' ? share : share()
    await pause(pauseMs(slice.usedMs, elapsedMs, shareNow), undefined, { signal }).catch(() => {})
  }
  return null
}

/** A longer pause can only follow from a slice that was read while the server had no core to run on. */
const pauseMaxMs = 10_000

/** How long to wait after a slice, so that the server spends no more than its share on the scan. */
export function pauseMs(usedMs: number, elapsedMs: number, share: number): number {
  const waitMs = Math.min(usedMs, elapsedMs) / share - elapsedMs
  return Math.min(Math.max(waitMs, 0), pauseMaxMs)
}

interface Slice {
  /** Where the next slice begins, '0' if this was the last one. */
  cursor: string
  counts: KeyCount[]
  /** Counters read, also those not in `counts`. */
  read: number
  /** How long the server took. */
  usedMs: number
}

async function readSlice(redis: Redis, from: string, options: ServerScan): Promise<Slice> {
  const { minute, above, readAlone } = options
  // Not a pipeline of ioredis: each one is an object of 30 kB that V8 keeps until a full garbage
  // collection, so the short ones take 5 ms instead of 1.
  const [before, slice, after] = await Promise.all([
    redis.time(),
    redis.eval(sources.readSlice, 0, from, minute, sliceNames, above?.() ?? 0),
    redis.time(),
  ])
  const [cursor, read, text, refused] = slice as [string, number, string, string[]]
  const apart = await Promise.all(refused.map(async (keyId) => ({ keyId, count: await readAlone(keyId) })))
  const found = apart.filter((one): one is KeyCount => one.count !== null)
  const usedMs = millisOf(after) - millisOf(before)
  return { cursor, counts: [...toCounts(text), ...found], read: read + found.length, usedMs }
}

/** Takes apart 'id count id count …'. */
function toCounts(text: string): KeyCount[] {
  const words = text === '' ? [] : text.split(' ')
  const counts: KeyCount[] = []
  for (let i = 0; i < words.length; i += 2) counts.push({ keyId: words[i]!, count: Number(words[i + 1]) })
  return counts
}

/** The answer to TIME in Unix milliseconds, with fractions. */
export const millisOf = ([seconds, micros]: number[]) => Number(seconds) * 1000 + Number(micros) / 1000

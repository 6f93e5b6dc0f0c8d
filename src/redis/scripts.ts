/**
 * The scripts in sql/redis as commands of a connection. ioredis sends a script's hash, and its text
 * if Redis does not have it.
 */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { minuteOf } from '../rules/window.ts'
import type { Lease } from '../stores.ts'
import { Cluster, type Redis } from './ioredis.ts'

/**
 * Seconds, microseconds, and for each API key its count (a number) and its version. The time alone:
 * it is too late, and nothing was counted.
 */
export type HitReply = (number | Lease)[]

export interface Scripts {
  /**
   * Runs sql/redis/hit.lua for these API keys; in a cluster, for one only. After `lastMinute`, nothing
   * is counted.
   */
  hit(keyIds: string[], hits: number[], lastMinute: number): Promise<HitReply>
  /** Whether a later call may just have been answered before an earlier one: a slot is moving. */
  mayOvertake(): boolean
  /** Runs sql/redis/probe.lua on the server that has this id's slot. */
  probe(id: string): Promise<number[]>
  /** Runs sql/redis/raise-version.lua. */
  raiseVersion(keyId: string, version: number): Promise<number>
  /** Runs sql/redis/confirm-version.lua; in a cluster, for one key only. */
  confirmVersions(reads: Read[]): Promise<unknown>
}

/** A version read from Postgres, and the lease to confirm it with. */
export interface Read {
  keyId: string
  lease: Lease
  version: number
}

/** What loadScripts adds to a connection. */
export type Commands = {
  latchkeyHitBuffer(...args: (string | number)[]): Promise<Buffer>
  latchkeyCount(key: string, minute: number, hits: number, anyway: string): Promise<number[]>
  latchkeyRaise(key: string, version: number, ttlS: number): Promise<number>
  latchkeyConfirm(...args: (string | number)[]): Promise<unknown>
  latchkeyProbe(key: string): Promise<number[]>
}

const source = (name: string) => readFileSync(fileURLToPath(import.meta.resolve(`#sql/${name}`)), 'utf8')

/** Read once, however many counters there are. */
export const sources = {
  hit: source('redis/hit.lua'),
  count: source('redis/count.lua'),
  raise: source('redis/raise-version.lua'),
  confirm: source('redis/confirm-version.lua'),
  probe: source('redis/probe.lua'),
  readSlice: source('redis/read-slice.lua'),
}

/** The name of a key's version in Redis. The id is the hash tag. */
export const versionKey = (keyId: string) => `rl:{${keyId}}:v`
export const counterKey = (keyId: string, minute: number) => `rl:{${keyId}}:${minute}`

/**
 * Longer than any instance trusts a cached key (60 s at most, see config.ts). sql/redis/hit.lua has
 * it too.
 */
const versionTtlS = 600

/**
 * Redis reports this for a script in a slot that is moving to another node, if one of the script's
 * keys has already moved.
 */
const isSlotMoving = (error: unknown) => /\bnon local key\b/.test((error as Error).message)

/** Longer than a call may take. */
const overtakingMs = 1000

export function loadScripts(client: Redis | Cluster): Scripts {
  client.defineCommand('latchkeyHit', { lua: sources.hit })
  client.defineCommand('latchkeyCount', { lua: sources.count, numberOfKeys: 1 })
  client.defineCommand('latchkeyRaise', { lua: sources.raise, numberOfKeys: 1 })
  client.defineCommand('latchkeyConfirm', { lua: sources.confirm })
  client.defineCommand('latchkeyProbe', { lua: sources.probe, numberOfKeys: 1 })
  const commands = client as unknown as Commands
  let slotMovedAtMs = Number.NEGATIVE_INFINITY

  /**
   * Counts and reads the version in separate calls. They need not be atomic: both run after the
   * request arrived, and a version is raised before its change is answered.
   */
  async function hitSeparately(
    keyId: string,
    hits: number,
    lastMinute: number,
    minute = lastMinute,
    anyway = '',
  ): Promise<HitReply> {
    const [[seconds, micros, count], version] = await Promise.all([
      commands.latchkeyCount(counterKey(keyId, minute), minute, hits, anyway),
      client.get(versionKey(keyId)).then(versionOf, () => noLease),
    ])
    if (count !== undefined) return [seconds!, micros!, count, version]
    const itsMinute = minuteOf(seconds! * 1000)
    if (itsMinute > lastMinute) return [seconds!, micros!]
    return hitSeparately(keyId, hits, lastMinute, itsMinute, 'anyway')
  }

  async function hitInCluster(keyId: string, hits: number, lastMinute: number): Promise<HitReply> {
    try {
      return unpack(await commands.latchkeyHitBuffer(1, versionKey(keyId), lastMinute, hits, 'cluster'), 1)
    } catch (error) {
      if (!isSlotMoving(error)) throw error
      slotMovedAtMs = performance.now()
      return hitSeparately(keyId, hits, lastMinute)
    }
  }

  async function hitTogether(keyIds: string[], hits: number[], lastMinute: number): Promise<HitReply> {
    const names = keyIds.map(versionKey)
    const sums = isOneEach(hits) ? [] : hits
    const packed = await commands.latchkeyHitBuffer(names.length, ...names, lastMinute, ...sums)
    return unpack(packed, names.length)
  }

  return {
    probe: (id) => commands.latchkeyProbe(`rl:{${id}}:probe`),
    hit: (keyIds, hits, lastMinute) =>
      client instanceof Cluster
        ? hitInCluster(keyIds[0]!, hits[0]!, lastMinute)
        : hitTogether(keyIds, hits, lastMinute),
    mayOvertake: () => performance.now() < slotMovedAtMs + overtakingMs,
    raiseVersion: (keyId, version) => commands.latchkeyRaise(versionKey(keyId), version, versionTtlS),
    confirmVersions(reads) {
      const names = reads.map(({ keyId }) => versionKey(keyId))
      const pairs = reads.flatMap(({ lease, version }) => [lease, version])
      return commands.latchkeyConfirm(names.length, ...names, versionTtlS, ...pairs)
    },
  }
}

/** The usual case with many keys. */
const isOneEach = (hits: number[]) => hits.every((count) => count === 1)

/** Reads the reply of sql/redis/hit.lua for this many keys. */
function unpack(packed: Buffer, keys: number): HitReply {
  const end = Math.min(16 + 16 * keys, packed.length)
  const reply: HitReply = []
  for (let at = 0; at < end; at += 8) reply.push(packed.readDoubleLE(at))
  if (packed.length === end) return reply
  const leases = packed.toString('latin1', end).split(' ')
  for (let i = 3, next = 0; i < reply.length; i += 2) if (reply[i] === 0) reply[i] = leases[next++]!
  return reply
}

/** Confirms nothing: the leases in Redis have a token. */
const noLease: Lease = '0?'

/** Parses a version as sql/redis/hit.lua does. */
function versionOf(text: string | null): number | Lease {
  if (text !== null && /^[1-9]\d{0,9}$/.test(text)) return Number(text)
  return text !== null && /^\d+\?[\d.]+$/.test(text) ? text : noLease
}

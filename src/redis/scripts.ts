/**
 * The scripts in sql/redis as commands of a connection. ioredis sends a script's hash, and its text
 * if Redis does not have it.
 */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Cluster, type Redis } from 'ioredis'
import { minuteOf } from '../rules/window.ts'

export interface Scripts {
  /** Runs sql/redis/hit.lua for these API keys; in a cluster, for one only. */
  hit(keyIds: string[], hits: number[]): Promise<number[]>
  /** Runs sql/redis/probe.lua on the server that has this id's slot. */
  probe(id: string): Promise<number[]>
  /** Runs sql/redis/raise-version.lua. `ttlS`: seconds until the version expires. */
  raiseVersion(keyId: string, version: number, ttlS: number): Promise<number>
}

type Commands = {
  latchkeyHit(...args: (string | number)[]): Promise<number[]>
  latchkeyCount(key: string, minute: number, hits: number): Promise<number[]>
  latchkeyRaise(key: string, version: number, ttlS: number): Promise<number>
  latchkeyProbe(key: string): Promise<number[]>
}

const source = (name: string) => readFileSync(fileURLToPath(import.meta.resolve(`#sql/${name}`)), 'utf8')

/**
 * The name of a key's version in Redis. Its counters have the minute in place of the v. The id is
 * the hash tag.
 */
export const versionKey = (keyId: string) => `rl:{${keyId}}:v`

/**
 * Redis reports this for a script in a slot that is moving to another node, if one of the script's
 * keys has already moved.
 */
const isApart = (error: unknown) => /\bnon local key\b/.test((error as Error).message)

export function loadScripts(client: Redis | Cluster): Scripts {
  client.defineCommand('latchkeyHit', { lua: source('redis/hit.lua') })
  client.defineCommand('latchkeyCount', { lua: source('redis/count.lua'), numberOfKeys: 1 })
  client.defineCommand('latchkeyRaise', { lua: source('redis/raise-version.lua'), numberOfKeys: 1 })
  client.defineCommand('latchkeyProbe', { lua: source('redis/probe.lua'), numberOfKeys: 1 })
  const commands = client as unknown as Commands

  /**
   * Counts and reads the version in separate calls. They need not be atomic: both run after the
   * request arrived, and a version is raised before its change is answered.
   */
  async function hitApart(keyId: string, hits: number, minute: number, again = true): Promise<number[]> {
    const [[seconds, micros, count], version] = await Promise.all([
      commands.latchkeyCount(`rl:{${keyId}}:${minute}`, minute, hits),
      client.get(versionKey(keyId)).then(versionOf, () => unreadable),
    ])
    if (count !== undefined) return [seconds!, micros!, count, version]
    if (!again) throw new Error('the nodes of the cluster are in different minutes')
    return hitApart(keyId, hits, minuteOf(seconds! * 1000), false)
  }

  function hitInCluster(keyId: string, hits: number): Promise<number[]> {
    return commands.latchkeyHit(1, versionKey(keyId), hits, 'cluster').catch((error) => {
      if (!isApart(error)) throw error
      return hitApart(keyId, hits, minuteOf(Date.now()))
    })
  }

  return {
    probe: (id) => commands.latchkeyProbe(`rl:{${id}}:probe`),
    hit: (keyIds, hits) =>
      client instanceof Cluster
        ? hitInCluster(keyIds[0]!, hits[0]!)
        : commands.latchkeyHit(keyIds.length, ...keyIds.map(versionKey), ...(isOneEach(hits) ? [] : hits)),
    raiseVersion: (keyId, version, ttlS) => commands.latchkeyRaise(versionKey(keyId), version, ttlS),
  }
}

/** The usual case with many keys. */
const isOneEach = (hits: number[]) => hits.every((count) => count === 1)

const unreadable = -1

/** Parses a version as sql/redis/hit.lua does. */
function versionOf(text: string | null): number {
  if (text === null) return 0
  return /^\d{1,10}$/.test(text) ? Number(text) : unreadable
}

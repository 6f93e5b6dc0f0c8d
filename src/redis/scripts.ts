/** The scripts of sql/ as commands of a connection. ioredis sends the hash, and the text where Redis has forgotten it. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Cluster, Redis } from 'ioredis'

export interface Scripts {
  /** sql/hit.lua for these API keys. */
  hit(keyIds: string[], hits: number[]): Promise<number[]>
  ping(): Promise<unknown>
  /** sql/raise-version.lua. */
  raiseVersion(keyId: string, version: number, ttlS: number): Promise<number>
}

type Commands = {
  latchkeyHit(...args: (string | number)[]): Promise<number[]>
  latchkeyRaise(key: string, version: number, ttlS: number): Promise<number>
}

const source = (name: string) => readFileSync(fileURLToPath(import.meta.resolve(`#sql/${name}`)), 'utf8')

/** Where a key's version is; its counters have the minute in place of the v. The id is the hash tag. */
export const versionKey = (keyId: string) => `rl:{${keyId}}:v`

export function loadScripts(client: Redis | Cluster): Scripts {
  client.defineCommand('latchkeyHit', { lua: source('hit.lua') })
  client.defineCommand('latchkeyRaise', { lua: source('raise-version.lua'), numberOfKeys: 1 })
  const commands = client as unknown as Commands
  return {
    ping: () => client.ping(),
    hit: (keyIds, hits) => commands.latchkeyHit(keyIds.length, ...keyIds.map(versionKey), ...hits),
    raiseVersion: (keyId, version, ttlS) => commands.latchkeyRaise(versionKey(keyId), version, ttlS),
  }
}

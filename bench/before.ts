/**
 * A built checkout of another Latchkey, to measure next to this one: `--before FOLDER`. Its schema
 * may differ, so its own program creates it.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { hashSecret } from './keys.ts'
import type { Database, Rig } from './rig.ts'
import type { Candidate } from './servers/candidate.ts'

export interface Before extends Database {
  cli: string
}

/** null: there is none to measure. */
export async function databaseBefore(rig: Rig, purpose: string, keys: number): Promise<Before | null> {
  const cli = rig.before
  if (cli === null) return null
  const migrate = async (databaseUrl: string) => {
    const env = { PATH: process.env.PATH, DATABASE_URL: databaseUrl, HASH_SECRET: hashSecret }
    await promisify(execFile)(process.execPath, [cli, 'migrate'], { env })
  }
  return { cli, ...(await rig.database(`${purpose}_before`, keys, { migrate })) }
}

export function startBefore(rig: Rig, { cli, url }: Before): Promise<Candidate> {
  // Give it its own Redis database: the two may use the same names differently.
  const redisUrl = Object.assign(new URL(rig.redis.url), { pathname: '/1' }).href
  return rig.start('latchkey-before', { url, redisUrl }, { cli })
}

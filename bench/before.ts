/**
 * A built checkout of another Latchkey, to measure next to this one: `--before FOLDER`. Its schema
 * may differ, so its own program creates its database and its own API mints its keys.
 */
import { execFile } from 'node:child_process'
import { appendFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { limit } from './candidates/answer.ts'
import { hashSecret } from './keys.ts'
import type { Rig } from './rig.ts'
import type { Candidate } from './servers/candidate.ts'

export interface Before {
  candidate: Candidate
  tokensFile: string
}

const creationsAtOnce = 32

export async function startBefore(rig: Rig, cli: string, purpose: string, keys: number): Promise<Before> {
  rig.say(`latchkey-before: a database with ${keys} ${keys === 1 ? 'key' : 'keys'}`)
  const databaseUrl = await rig.postgres.createDatabase(`${purpose}_before`)
  // Give it its own Redis database: the two may use the same names differently.
  const redisUrl = Object.assign(new URL(rig.redis.url), { pathname: '/1' }).href

  const run = async (...args: string[]) => {
    const env = {
      PATH: process.env.PATH,
      DATABASE_URL: databaseUrl,
      REDIS_URL: redisUrl,
      HASH_SECRET: hashSecret,
    }
    return (await promisify(execFile)(process.execPath, [cli, ...args], { env })).stdout
  }
  await run('migrate')
  const user = JSON.parse(await run('users', 'create', '--name', 'a user of a benchmark', '--json'))
  const options = ['--name', 'key 0', '--rate-limit-rpm', String(limit), '--json']
  const first = JSON.parse(await run('keys', 'create', '--user', user.id, ...options))

  const env = { MAX_KEYS_PER_USER: String(keys) }
  const candidate = await rig.start('latchkey-before', { url: databaseUrl, redisUrl }, { cli, env })
  const tokensFile = join(rig.folder, `tokens-${purpose}-before`)
  await writeFile(tokensFile, `${first.plain_key}\n`)
  for (let n = 1; n < keys; n += creationsAtOnce) {
    const some = Array.from({ length: Math.min(creationsAtOnce, keys - n) }, (_, i) => n + i)
    const tokens = await Promise.all(some.map((one) => createKey(candidate.url, first.plain_key, one)))
    await appendFile(tokensFile, tokens.map((token) => `${token}\n`).join(''))
  }
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  await sql`vacuum analyze`
  await sql.end()
  return { candidate, tokensFile }
}

async function createKey(url: string, token: string, n: number): Promise<string> {
  const response = await fetch(`${url}/v1/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: `key ${n}`, rate_limit_rpm: limit }),
  })
  if (response.status !== 201) throw new Error(`latchkey-before: creating a key got ${response.status}`)
  const { plain_key } = (await response.json()) as { plain_key: string }
  return plain_key
}

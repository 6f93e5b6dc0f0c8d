/**
 * `npm run demo`: the tour. Three instances on one Postgres and one Redis, behind one address, with
 * customers who use their keys, exceed their limits, or have none. Nothing of it stays.
 *
 * Three instances need a Redis to count in: REDIS_URL, or a redis-server on PATH. Without either
 * there is one instance, which counts in memory.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { hashSecret } from '../keys.ts'
import { startCandidate } from '../servers/candidate.ts'
import { startPostgres } from '../servers/postgres.ts'
import { startRedis } from '../servers/redis.ts'
import { stopRequested } from '../stopping.ts'
import { startBalancer } from './balancer.ts'
import { makeCustomers, type OwnKey } from './customers.ts'
import { startTraffic } from './traffic.ts'

const reportEveryMs = 10_000
const signalMs = 100

const say = (line: string) => process.stdout.write(`${line}\n`)
// Ctrl-C and a closed terminal reach the servers too, which then stop by themselves.
const stopping = stopRequested(say)
const closers: (() => Promise<unknown>)[] = []

async function run() {
  const folder = await mkdtemp(join(tmpdir(), 'latchkey-demo-'))
  closers.push(() => rm(folder, { recursive: true, force: true }))
  say('Starting Postgres, Redis and Latchkey …')
  const postgres = await startPostgres(folder, undefined)
  closers.push(() => postgres.stop())
  const redisUrl = await redisIn(folder)
  const settings = { databaseUrl: await postgres.createDatabase('demo'), redisUrl, hashSecret }
  const instances = []
  for (let n = 0; n < (redisUrl === null ? 1 : 3); n++) {
    stopping.throwIfAborted()
    // TRUST_PROXY: the clients name their addresses.
    // Without Redis, a change would wait until no copy of the key is used.
    const alone = redisUrl === null && { KEY_CACHE_SECONDS: '0' }
    const env = { TRUST_PROXY: '1', DRAIN_SECONDS: '0', ...alone }
    const instance = await startCandidate('latchkey', { ...settings, env })
    closers.push(() => instance.stop())
    instances.push(instance)
  }
  const balancer = await startBalancer(instances.map(({ url }) => url))
  closers.push(() => balancer.close())
  const opsUrl = instances[0]!.opsUrl!.replace('127.0.0.1', 'localhost')
  const { clients, yours } = await makeCustomers(opsUrl)
  const traffic = startTraffic(balancer.url, clients)
  closers.push(() => traffic.stop())
  for (const line of tour({ ...settings, url: balancer.url, opsUrl, instances: instances.length, yours }))
    say(line)

  for (;;) {
    await pause(reportEveryMs, undefined, { signal: stopping })
    const counts = [...traffic.taken()].sort(([a], [b]) => a - b)
    say(`in 10 s: ${counts.map(([status, count]) => `${count} × ${status || 'no answer'}`).join(', ')}`)
  }
}

/** Null if there is none. */
async function redisIn(folder: string): Promise<string | null> {
  const given = process.env.REDIS_URL || undefined
  try {
    const redis = await startRedis(folder, given)
    closers.push(() => redis.stop())
    return redis.url
  } catch (error) {
    if (given !== undefined) throw error
    say('There is no redis-server here: one instance, which counts in memory.')
    return null
  }
}

interface Tour {
  databaseUrl: string
  redisUrl: string | null
  url: string
  opsUrl: string
  instances: number
  yours: OwnKey
}

const tour = ({ databaseUrl, redisUrl, url, opsUrl, instances, yours }: Tour) => [
  '',
  `  Dashboard   ${opsUrl}/`,
  `  Service     ${url}   (${instances === 1 ? 'one instance' : `${instances} instances behind it`})`,
  `  Metrics     ${opsUrl}/metrics`,
  '',
  'Your key, good for 60 requests a minute. See x-ratelimit-remaining count down, whichever instance answers:',
  '',
  `  curl -i ${url}/v1/verify -H 'Authorization: Bearer ${yours.token}'`,
  '',
  'Find it in the dashboard, revoke it there, and ask again: 401, on every instance. The audit log says why:',
  '',
  `  export DATABASE_URL='${databaseUrl}' HASH_SECRET='${hashSecret}'${redisUrl === null ? '' : ` REDIS_URL='${redisUrl}'`}`,
  `  npx latchkey audit list --key ${yours.id}`,
  '',
  'Ctrl-C stops everything and removes its files.',
  '',
]

/** Closes the last one first. A failure does not keep the others from closing. */
async function closeAll() {
  for (const close of closers.splice(0).reverse()) await close().catch((error: Error) => say(error.message))
}

try {
  await run()
} catch (error) {
  // A server that is starting may hear of Ctrl-C before we do.
  await pause(signalMs)
  if (!stopping.aborted) {
    process.stderr.write(`demo: ${(error as Error).message}\n`)
    process.exitCode = 1
  }
}
await closeAll()
if (stopping.aborted) say('Stopped.')

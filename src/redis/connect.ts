/** Connections to Redis as the counter needs them: an answer soon, or none. */
import { lookup } from 'node:dns'
import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'

/** Nothing is queued, resent or retried: an increment that got no answer may have run. */
const impatient = {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: 1000,
  // By itself the client waits 2 s for the end of a connection that has long ended.
  disconnectTimeout: 100,
  // Steady and short: counting is back within two seconds of Redis.
  retryStrategy: () => 200,
  connectionName: 'latchkey',
  keepAlive: 10_000,
}

/** A slot that has moved is learned of at the first request for it, too. */
const slotsRefreshMs = 2000

/** One URL: a single server. Several: the nodes of a Redis Cluster to ask for its topology first. */
export function connectRedis(urls: string[]): Redis | Cluster {
  const [first, ...others] = urls
  if (first !== undefined && others.length === 0) return new Redis(first, impatient)
  const cluster = new Cluster(urls, {
    redisOptions: impatient,
    // A name that is not known is a node that is away; by itself the client would then ask none of the others.
    dnsLookup: (host, done) => lookup(host, (error, address) => done(null, error ? host : address)),
    enableOfflineQueue: false,
    clusterRetryStrategy: () => 200,
    // A node that does not answer is as likely to be asked first as any.
    slotsRefreshTimeout: 500,
    // Only what a server has refused is sent again: after a lost connection an increment may have run.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
  })
  // By itself the client connects to a node at its first command, and refuses what comes meanwhile.
  cluster.on('+node', (node: Redis) => {
    if (node.status === 'wait') node.connect().catch(() => {})
  })
  // Not by the client's own option: a refresh under way at the end would start its timer again, and the process would not end.
  const refreshing = setInterval(() => cluster.refreshSlotsCache(), slotsRefreshMs)
  refreshing.unref()
  cluster.once('end', () => clearInterval(refreshing))
  return cluster
}

/** Waits until commands can be sent to every server, at most so long: whoever is away is then taken for away. */
export async function whenReady(client: Redis | Cluster, timeoutMs: number): Promise<void> {
  const isReady = () =>
    client.status === 'ready' &&
    (!(client instanceof Cluster) || client.nodes('master').every(({ status }) => status === 'ready'))
  const untilMs = performance.now() + timeoutMs
  while (!isReady() && performance.now() < untilMs) await sleep(10)
}

/** The client goes on in database 0 where Redis has none of the number it was given; nobody would notice. */
export async function requireDatabase(client: Redis | Cluster): Promise<void> {
  if (client instanceof Cluster || client.status !== 'ready' || !client.options.db) return
  const { db } = client.options
  await client.select(db).catch((error: Error) => {
    if (!/out of range/.test(error.message)) return
    client.disconnect()
    throw new Error(`REDIS_URL names database ${db}, which this Redis does not have`)
  })
}

/** Connections to Redis as the counter needs them: a prompt answer, or none. */
import { connect, isIP } from 'node:net'
import { checkServerIdentity, type PeerCertificate, connect as tlsConnect } from 'node:tls'
import { AbstractConnector, Cluster, Redis, type RedisOptions } from 'ioredis'
import type { RedisServers } from '../rules/redis-url.ts'
import { isAnswer } from './outage.ts'

/** Nothing is queued, resent or retried: an increment that got no answer may have run. */
const impatient = {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  // Whether a server can count is asked by a count (shard.ts). INFO, which ioredis would ask, does not tell, and while a
  // server loads its data ioredis would wait for up to 10 s without a word.
  enableReadyCheck: false,
  connectTimeout: 1000,
  // By itself the client waits 2 s for the end of a connection that has long ended.
  disconnectTimeout: 100,
  // Steady and short: counting is back within two seconds of Redis.
  retryStrategy: () => 200,
  connectionName: 'latchkey',
  keepAlive: 10_000,
} satisfies RedisOptions

/** A slot that has moved is learned of at the first request for it, too. */
const slotsRefreshMs = 2000

/** One node: a single server. Several: the nodes of a Redis Cluster to ask for its topology first. */
export function connectRedis(servers: RedisServers): Redis | Cluster {
  const { nodes, tls, username, password, db } = servers
  const options = {
    ...impatient,
    Connector,
    ...(tls && { tls: { checkServerIdentity: identityCheck(nodes.map(({ host }) => host)) } }),
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
  }
  const [first, ...others] = nodes
  if (first === undefined || others.length > 0) return connectCluster(nodes, options)
  const client = new Redis({ ...options, ...first, db })
  // Without this ioredis would continue in database 0.
  client.on('error', (error) => {
    if (isSelectRefused(error)) client.disconnect(true)
  })
  return client
}

function connectCluster(nodes: RedisServers['nodes'], redisOptions: RedisOptions): Cluster {
  const cluster = new Cluster([...nodes], {
    // Here and not with the nodes: what the cluster names later gets nothing else.
    redisOptions: redisOptions as Omit<RedisOptions, 'replyMapping'>,
    // The names stay what they are: certificates are for them, and one that is unknown is only a node that is down.
    dnsLookup: (host, done) => done(null, host),
    enableOfflineQueue: false,
    enableReadyCheck: false,
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

/**
 * ioredis's own connector listens for one error of a stream. A refused TLS handshake may have two, and one that nobody
 * listens for ends the process. A class because ioredis constructs it.
 */
class Connector extends AbstractConnector {
  private readonly options: RedisOptions

  constructor(options: unknown) {
    const { disconnectTimeout } = options as typeof impatient
    super(disconnectTimeout)
    this.options = options as RedisOptions
  }

  async connect() {
    const { host = '', port = 0, tls } = this.options
    this.connecting = true
    this.stream = tls
      ? tlsConnect({ ...tls, host, port, ...(isIP(host) === 0 && { servername: host }) })
      : connect({ host, port })
    this.stream.on('error', (error) => {
      this.firstError = error
    })
    return this.stream
  }
}

/**
 * A certificate must be valid for the host that we connect to, or for a host name of REDIS_URL: the nodes of a cluster may
 * announce addresses, while their certificates are for names.
 */
function identityCheck(hosts: string[]) {
  const names = hosts.filter((host) => isIP(host) === 0)
  return (host: string, certificate: PeerCertificate) => {
    const fault = checkServerIdentity(host, certificate)
    const isNamed = names.some((name) => checkServerIdentity(name, certificate) === undefined)
    return isNamed ? undefined : fault
  }
}

/** Throws where the server refuses the database that REDIS_URL names: it has none of that number, or not for this user. */
export async function requireDatabase(client: Redis | Cluster): Promise<void> {
  if (client instanceof Cluster || !client.options.db) return
  // By a connection of its own: the client's may never be ready.
  const asking = client.duplicate({ db: 0, lazyConnect: true, retryStrategy: null })
  asking.on('error', () => {})
  try {
    await asking.connect()
    await asking.select(client.options.db)
  } catch (error) {
    // A server that is down or refuses the password may be there later.
    if (!isSelectRefused(error as Error)) return
    client.disconnect()
    const { message } = error as Error
    throw new Error(`REDIS_URL names database ${client.options.db}, which this Redis refuses: ${message}`)
  } finally {
    asking.disconnect()
  }
}

function isSelectRefused(error: Error): boolean {
  const { command } = error as { command?: { name: string } }
  return isAnswer(error) && command?.name.toLowerCase() === 'select'
}

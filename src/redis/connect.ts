/** Connections to Redis as the counter needs them: they answer promptly or fail. */
import { connect, isIP } from 'node:net'
import { checkServerIdentity, type PeerCertificate, connect as tlsConnect } from 'node:tls'
import type { RedisOptions } from 'ioredis'
import type { RedisServers } from '../rules/redis-url.ts'
import { AbstractConnector, Cluster, Redis } from './ioredis.ts'
import { isAnswer } from './outage.ts'
import { withTimeout } from './with-timeout.ts'

/** Nothing is queued, resent or retried: an increment without a reply may have run. */
const impatient = {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  // The counter itself probes whether a server can count (server-state.ts). ioredis would use INFO, which
  // does not say, and would wait silently for up to 10 s while a server loads its data.
  enableReadyCheck: false,
  connectTimeout: 1000,
  // By default, ioredis waits 2 s for the end of a connection that has already ended.
  disconnectTimeout: 100,
  // Short and constant, so that counting resumes within two seconds of Redis coming back.
  retryStrategy: () => 200,
  connectionName: 'latchkey',
  // RESP3 brings nothing here, and begins with HELLO, which some proxies refuse.
  protocol: 2,
  keepAlive: 10_000,
} satisfies RedisOptions

/** At the start, as long as for connecting. ioredis itself would wait forever for the replies that follow. */
const firstAnswersTimeoutMs = 1000

/** A slot that has moved is also noticed at the first request for it. */
const slotsRefreshMs = 2000

/**
 * One node is a single server. Several are nodes of a Redis Cluster, to be asked for its topology
 * first.
 */
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
    // Set here and not with the nodes, because nodes discovered later get only these options.
    redisOptions: redisOptions as Omit<RedisOptions, 'replyMapping'>,
    // Host names stay unresolved: certificates name them, and a name that does not resolve is just
    // a node that is down.
    dnsLookup: (host, done) => done(null, host),
    enableOfflineQueue: false,
    enableReadyCheck: false,
    clusterRetryStrategy: () => 200,
    // Short, because a node that does not answer may be the first to be asked.
    slotsRefreshTimeout: 500,
    // Resend only what a server has refused: after a lost connection, an increment may have run.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
  })
  // By default, ioredis connects to a node at its first command, and rejects commands until then.
  cluster.on('+node', (node: Redis) => void node.connect().catch(() => {}))
  // Not with ioredis's own option: a refresh in flight at the end would restart its timer and keep
  // the process alive.
  const refreshing = setInterval(() => cluster.refreshSlotsCache(), slotsRefreshMs)
  refreshing.unref()
  cluster.once('end', () => clearInterval(refreshing))
  return cluster
}

/**
 * ioredis's own connector listens for one error per stream. A refused TLS handshake may emit two,
 * and an unhandled one ends the process. This is a class because ioredis constructs it.
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
 * A certificate must be valid for the host that we connect to, or for a host name in REDIS_URL:
 * cluster nodes may announce addresses while their certificates name hosts.
 */
function identityCheck(hosts: string[]) {
  const names = hosts.filter((host) => isIP(host) === 0)
  return (host: string, certificate: PeerCertificate) => {
    const fault = checkServerIdentity(host, certificate)
    const isNamed = names.some((name) => checkServerIdentity(name, certificate) === undefined)
    return isNamed ? undefined : fault
  }
}

/**
 * Throws if the server refuses the database in REDIS_URL: it has none of that number, or the user
 * may not select it.
 */
export async function requireRedisDatabase(client: Redis | Cluster): Promise<void> {
  if (client instanceof Cluster || !client.options.db) return
  // Use a separate connection, because the client's may never be ready.
  const probe = client.duplicate({ db: 0, lazyConnect: true, retryStrategy: null })
  probe.on('error', () => {})
  try {
    const { db } = client.options
    await withTimeout(
      probe.connect().then(() => probe.select(db)),
      firstAnswersTimeoutMs,
    )
  } catch (error) {
    // A server that is down, silent or busy, or refuses the password, may still recover.
    const { message } = error as Error
    if (!isSelectRefused(error as Error) || !/^(ERR|NOPERM)\b/.test(message)) return
    client.disconnect()
    throw new Error(`REDIS_URL names database ${client.options.db}, which this Redis refuses: ${message}`)
  } finally {
    probe.disconnect()
  }
}

function isSelectRefused(error: Error): boolean {
  const { command } = error as { command?: { name: string } }
  return isAnswer(error) && command?.name.toLowerCase() === 'select'
}

/** Finds out whether Redis can count for the service, and leaves nothing behind. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { connect as tlsConnect } from 'node:tls'
import { clockFinding, type Finding, withoutAddress } from '../rules/finding.ts'
import type { RedisServers } from '../rules/redis-url.ts'
import type { Counter, Outage } from '../stores.ts'
import { connectRedis, requireRedisDatabase } from './connect.ts'
import { createRedisCounter } from './counter.ts'
import { Cluster, type Redis } from './ioredis.ts'
import { outageOf } from './outage.ts'
import { millisOf } from './scan-server.ts'
import { answerTimeoutMs, withTimeout } from './with-timeout.ts'

/** A counter tries a new server for a second before it says what is wrong. */
const waitMs = 2500
const patientTimeoutMs = 1000
/** The service gives up after twice as long. */
const slowMs = answerTimeoutMs / 2
const oldestVersion = 6

const adviceByCause: Partial<Record<Outage['cause'], string>> = {
  wrong_password: 'Check the user and the password in REDIS_URL.',
  no_permission: 'Grant the user what "Permissions" in docs/operations.md lists.',
  certificate: 'Check the certificate, the host names in REDIS_URL and NODE_EXTRA_CA_CERTS.',
  tls: 'Use rediss:// for a server that speaks TLS, and redis:// for one that does not.',
  unknown_host: 'Check the host names in REDIS_URL.',
  read_only: 'Point REDIS_URL at the master, not at a replica.',
  out_of_memory: 'Give Redis more memory; what Latchkey stores expires within minutes.',
  loading: 'Wait until Redis has loaded its data.',
  cluster_down: 'See `redis-cli cluster info`: some slots have no master.',
}

/** Rejects only on a fault of our own. */
export async function examineRedis(servers: RedisServers): Promise<Finding[]> {
  const client = connectRedis(servers)
  // The counter finds out by itself what a server refuses.
  const counter = createRedisCounter({ client })
  try {
    await requireRedisDatabase(client)
    await settled(counter)
    const nodes = client instanceof Cluster ? client.nodes('master') : [client]
    const ready = nodes.filter(({ status }) => status === 'ready')
    const found = counter.outages().length > 0 ? counter.outages() : await refusals(client, ready)
    const outages = (await explained(found, servers)).map(outageFinding)
    const details = await Promise.all(ready.map((node) => examineServer(node, client instanceof Cluster)))
    if (outages.length > 0) return [...outages, ...details.flat().filter(({ state }) => state === 'wrong')]
    return [
      { about: 'Redis', state: 'ok', found: 'counts, and has every permission that requests need' },
      ...details.flat(),
    ]
  } catch (error) {
    const found = withoutAddress((error as Error).message)
    const advice = /NOPERM/.test(found)
      ? 'Grant the user +select: see "Permissions" in docs/operations.md.'
      : 'Check REDIS_URL.'
    return [{ about: 'Redis', state: 'wrong', found, advice }]
  } finally {
    await counter.close()
  }
}

/** A late answer or connection, as on a busy machine, is no fault unless it lasts. */
async function settled(counter: Counter) {
  const untilMs = performance.now() + waitMs
  const isFailed = () =>
    counter.outages().some(({ cause }) => cause !== 'timeout' && cause !== 'disconnected')
  while (counter.mode() !== 'shared' && !isFailed() && performance.now() < untilMs) await pause(10)
}

const unknownScript = '0'.repeat(40)

/**
 * Tries the commands that the counter has not sent yet, and returns those that were refused. The first
 * call of a script on a connection is an EVAL, and a cluster demands ASKING only while a slot moves.
 */
async function refusals(client: Redis | Cluster, nodes: Redis[]): Promise<Outage[]> {
  const isCluster = client instanceof Cluster
  const tried = nodes.flatMap((node) => {
    const tries = [node.evalsha(unknownScript, 0), ...(isCluster ? [node.asking()] : [])]
    const { host, port } = node.options
    const named = (error: Error) => ({ ...outageOf(error), ...(isCluster && { server: `${host}:${port}` }) })
    return tries.map((one) => withTimeout(one, patientTimeoutMs).then(() => null, named))
  })
  return (await Promise.all(tried)).filter((outage): outage is Outage => outage?.cause === 'no_permission')
}

const outageFinding = ({ cause, reason, server }: Outage): Finding => ({
  about: server === undefined ? 'Redis' : `Redis ${server}`,
  state: 'wrong',
  found: withoutAddress(reason),
  advice:
    adviceByReason.find(([said]) => said.test(reason))?.[1] ??
    adviceByCause[cause] ??
    'Check REDIS_URL, and that the server is running and accepts connections from this machine.',
})

/** Takes precedence: what the server itself says about why it takes no connection or does not count. */
const adviceByReason: [RegExp, string][] = [
  [
    /alert certificate required/,
    'Latchkey has no certificate of its own: set `tls-auth-clients no` in Redis.',
  ],
  [/\bNOREPLICAS\b/, 'See `redis-cli info replication`: too few replicas are connected and up to date.'],
  [/\bMISCONF\b/, 'Redis cannot save its data: see its log, and whether its disk is full.'],
  [/^DENIED/, 'Give Redis a password, with `requirepass` or an ACL user, and add it to REDIS_URL.'],
  [/does not answer$/, 'Check that REDIS_URL names a Redis, and whether it is suspended or busy.'],
  [/max number of clients/, 'See `redis-cli client list` for who is connected, or raise `maxclients`.'],
  [
    /unknown command '(eval|cluster)'/i,
    'If that is a Sentinel, see "Redis with Sentinel" in docs/operations.md.',
  ],
  [/cluster support disabled/, 'Put one URL into REDIS_URL: several name the nodes of a Redis Cluster.'],
]

/**
 * Finds out why servers just hang up, by asking one of them. With TLS, another fault may look like a
 * TLS fault, because the client had no time to read the real one. Other outages explain themselves.
 */
async function explained(outages: readonly Outage[], { nodes, tls }: RedisServers) {
  const others = outages.filter(({ cause }) => cause !== 'disconnected' && !(tls && cause === 'tls'))
  if (others.length === outages.length) return outages
  const refusal = await refusalOf(nodes[0]!, tls)
  if (refusal !== null) return [refusal, ...others]
  if (tls || !(await speaksTls(nodes[0]!))) return outages
  return [{ cause: 'tls' as const, reason: 'the server speaks TLS' }, ...others]
}

/**
 * A server that takes no connection says why and hangs up, before it has read anything. To a client
 * that sends its first commands at once, that looks like a broken connection.
 */
async function refusalOf(
  { host, port }: RedisServers['nodes'][number],
  tls: boolean,
): Promise<Outage | null> {
  const socket = tls ? tlsConnect({ host, port, rejectUnauthorized: false }) : connect({ host, port })
  const { event, error } = await first(socket, 'data')
  const alert = error && outageOf(error)
  if (alert?.cause === 'certificate') return alert
  const reason = /^-(.*?)(?:\. |\r\n)/.exec(String(event?.[0]))?.[1]
  return reason === undefined ? null : { cause: 'disconnected', reason }
}

/** A server that expects TLS hangs up on a plaintext client without a word. */
async function speaksTls({ host, port }: RedisServers['nodes'][number]): Promise<boolean> {
  const { event } = await first(tlsConnect({ host, port, rejectUnauthorized: false }), 'secureConnect')
  return event !== undefined
}

/** What comes with the first such event, or why there is none in time. Ends the connection. */
async function first(socket: Socket, name: string): Promise<{ event?: unknown[]; error?: Error }> {
  try {
    return { event: await once(socket, name, { signal: AbortSignal.timeout(patientTimeoutMs) }) }
  } catch (error) {
    return { error: error as Error }
  } finally {
    socket.destroy()
  }
}

async function examineServer(node: Redis, isCluster: boolean): Promise<Finding[]> {
  const where = isCluster ? ` ${node.options.host}:${node.options.port}` : ''
  const ask = <T>(sent: Promise<T>) => withTimeout(sent, patientTimeoutMs)
  try {
    const beforeMs = Date.now()
    const serverMs = millisOf(await ask(node.time()))
    const afterMs = Date.now()
    const rows = [clockFinding(`Redis clock${where}`, serverMs, beforeMs, afterMs)]
    if (afterMs - beforeMs > slowMs) rows.push(slow(`Redis${where}`, afterMs - beforeMs))
    const info = await ask(node.info()).catch(() => null)
    rows.push(...(info === null ? [silent(`Redis settings${where}`)] : settings(where, info, isCluster)))
    const scans = await ask(node.scan('0', 'COUNT', 1)).then(Boolean, () => false)
    if (!scans) rows.push(noScan(`Redis${where}`))
    return rows
  } catch {
    // The outage of the counter says more.
    return []
  }
}

const slow = (about: string, ms: number): Finding => ({
  about,
  state: 'note',
  found: `takes ${ms} ms to answer; the service gives up after ${answerTimeoutMs} ms`,
  advice: 'Put it closer to the service.',
})

const silent = (about: string): Finding => ({
  about,
  state: 'note',
  found: 'not readable: the user may not run INFO',
  advice: 'Make sure that maxmemory-policy is noeviction, or allow +info.',
})

const noScan = (about: string): Finding => ({
  about,
  state: 'note',
  found: 'the user may not run SCAN: operators see only the counts of one instance, and usage is incomplete',
  advice: 'Allow +scan.',
})

export function settings(where: string, info: string, isCluster: boolean): Finding[] {
  const member = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? ''
  const version = member('redis_version')
  const policy = member('maxmemory_policy')
  const evicts = policy !== 'noeviction' && member('maxmemory') !== '0'
  const found: Finding[] = [
    Number(version.split('.')[0]) < oldestVersion
      ? {
          about: `Redis${where}`,
          state: 'note',
          found: `version ${version}`,
          advice: 'Latchkey is tested with 7.0.',
        }
      : { about: `Redis${where}`, state: 'ok', found: `version ${version}` },
    evicts
      ? {
          about: `Redis eviction${where}`,
          state: 'wrong',
          found: `maxmemory-policy is ${policy}: it may forget counts and changes of keys`,
          advice: 'Set maxmemory-policy noeviction.',
        }
      : {
          about: `Redis eviction${where}`,
          state: 'ok',
          found: `${policy}, maxmemory ${member('maxmemory_human')}`,
        },
  ]
  if (member('cluster_enabled') === '1' && !isCluster)
    found.push({
      about: 'Redis',
      state: 'wrong',
      found: 'is a node of a cluster, but REDIS_URL has only one URL',
      advice: 'Name at least two nodes, separated by commas.',
    })
  return found
}

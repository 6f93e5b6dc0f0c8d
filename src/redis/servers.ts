/** The servers that count: which key is on which, and why one of them cannot be reached. */
import slotOf from 'cluster-key-slot'
import { Unavailable } from '../stores.ts'
import { Cluster, type Redis } from './ioredis.ts'
import { isVague } from './outage.ts'
import { answerTimeoutMs } from './with-timeout.ts'

export interface Servers {
  /**
   * The server that counts the key; '' for a single server, or if the cluster has not said which.
   */
  serverOf(keyId: string): string
  /** All servers that count keys. */
  masters(): ReadonlySet<string>
  /** An id that this server counts. If it has no slots any more, an id that any server counts. */
  idOn(server: string): string
  /** Null while the server is connected. */
  fault(server: string): Error | null
  /** The connection to this very server, for commands without a key. */
  connection(server: string): Redis | undefined
}

interface Watcher {
  /** The set of masters may have changed. */
  onMasters(): void
  /** Nothing can be sent to this server any more. */
  onLost(server: string): void
}

export const slots = 16_384
export const notConnected = () => new Error('not connected')
const silent = new Unavailable('accepts connections, but does not answer')

export const watchServers = (client: Redis | Cluster, watcher: Watcher): Servers =>
  client instanceof Cluster ? watchCluster(client, watcher) : watchOne(client, watcher)

/** Calls back when the server has accepted a connection and does not answer on it. */
function onSilence(client: Redis, callback: () => void) {
  let waiting: NodeJS.Timeout | undefined
  client.on('connect', () => {
    waiting = setTimeout(callback, answerTimeoutMs)
    waiting.unref()
  })
  for (const event of ['ready', 'close']) client.on(event, () => clearTimeout(waiting))
}

function watchOne(client: Redis, { onLost }: Watcher): Servers {
  const masters = new Set([''])
  let lastError: Error | undefined
  /** Why the last connection ended, or is of no use; used until one is ready. */
  let fault = notConnected()
  client.on('connect', () => {
    lastError = undefined
  })
  client.on('ready', () => {
    if (lastError === silent) lastError = undefined
  })
  client.on('error', (error: Error) => {
    lastError = error
  })
  onSilence(client, () => {
    lastError = silent
    fault = silent
  })
  client.on('close', () => {
    fault = lastError ?? notConnected()
    onLost('')
  })
  return {
    serverOf: () => '',
    masters: () => masters,
    idOn: () => 'probe',
    fault: () => (client.status === 'ready' ? null : fault),
    connection: () => client,
  }
}

const nameOf = ({ options }: Redis) => `${options.host}:${options.port}`

function watchCluster(client: Cluster, { onMasters, onLost }: Watcher): Servers {
  let masters = new Set([''])
  /** The last error of each node that is not connected; under '', the last error of any node. */
  const faults = new Map<string, Error>()
  const note = (error: Error, server: string) => {
    for (const one of [server, '']) if (!isVague(error) || !faults.has(one)) faults.set(one, error)
  }
  const masterOf = (slot: number) => (client as unknown as { slots: string[][] }).slots[slot]?.[0] ?? ''
  const serverOf = (keyId: string) => masterOf(slotOf(keyId))
  const connection = (server: string) => client.nodes().find((node) => nameOf(node) === server)
  const mastersNow = () => new Set(Array.from({ length: slots }, (_, slot) => masterOf(slot)))

  client.on('error', () => {})
  client.on('node error', note)
  client.on('+node', (node: Redis) => {
    node.once('ready', () => faults.delete(nameOf(node)))
    onSilence(node, () => note(silent, nameOf(node)))
  })
  client.on('-node', (node: Redis) => onLost(nameOf(node)))
  client.on('close', () => masters.forEach(onLost))
  client.on('refresh', () => {
    masters = mastersNow()
    for (const server of faults.keys()) if (!masters.has(server)) faults.delete(server)
    onMasters()
  })

  return {
    serverOf,
    masters: () => masters,
    idOn(server) {
      // Compute the masters now: a redirection may have changed the slots since the last refresh,
      // and then the search would not end.
      const hasSlots = mastersNow().has(server)
      for (let i = 0; ; i++) if (!hasSlots || serverOf(`probe${i}`) === server) return `probe${i}`
    },
    fault(server) {
      const fault = faults.get(server)
      if (client.status !== 'ready') {
        // The nodes in REDIS_URL are being asked, and may go by other names than the masters.
        return (fault && !isVague(fault) ? fault : faults.get('')) ?? notConnected()
      }
      // Commands for a node without slots go to the nodes that have them.
      if (server === '' || !masters.has(server)) return null
      const node = connection(server)
      // The cluster has dropped this node. If its own fault is not known, those of the others say why.
      if (node === undefined) return fault ?? null
      return node.status === 'ready' ? null : (fault ?? notConnected())
    },
    connection,
  }
}

/** What REDIS_URL says: one server, or several nodes of a cluster, and how to log in to each of them. */

export interface RedisServers {
  /** One: a server. Several: nodes of a Redis Cluster to ask for the others. */
  nodes: readonly { host: string; port: number }[]
  tls: boolean
  username: string | undefined
  password: string | undefined
  db: number
}

const defaultPort = 6379

/**
 * Undefined where it is no such URL. All nodes share one scheme, user and password: a node that the cluster names later has
 * no URL of its own. A cluster has database 0 alone.
 */
export function parseRedisUrl(text: string): RedisServers | undefined {
  const servers = text.split(',').map((url) => parseOne(url.trim()))
  const [first] = servers
  if (first === undefined) return undefined
  const nodes: { host: string; port: number }[] = []
  for (const server of servers) {
    if (server === undefined) return undefined
    const { tls, username, password, db } = server
    if (tls !== first.tls || username !== first.username || password !== first.password) return undefined
    if (servers.length > 1 && db !== 0) return undefined
    nodes.push(server.node)
  }
  const { tls, username, password, db } = first
  return { nodes, tls, username, password, db }
}

function parseOne(text: string) {
  try {
    const { protocol, hostname, port, username, password, pathname, search, hash } = new URL(text)
    // A parameter that has no effect here may be one that somebody counts on.
    if (!/^rediss?:$/.test(protocol) || hostname === '' || search !== '' || hash !== '') return undefined
    if (!/^\/?\d*$/.test(pathname)) return undefined
    return {
      node: { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || defaultPort) },
      tls: protocol === 'rediss:',
      username: decodeURIComponent(username) || undefined,
      password: decodeURIComponent(password) || undefined,
      db: Number(pathname.slice(1)),
    }
  } catch {
    return undefined
  }
}

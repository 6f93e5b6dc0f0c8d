/**
 * Parses REDIS_URL: one server or several nodes of a cluster, and how to log in to each of them.
 */

export interface RedisServers {
  /**
   * One node is a single server. Several are nodes of a Redis Cluster, to be asked for the others.
   */
  nodes: readonly { host: string; port: number }[]
  tls: boolean
  username: string | undefined
  password: string | undefined
  db: number
}

const defaultPort = 6379

/**
 * Returns undefined if the text is invalid. All nodes share one scheme, user and password, because
 * a node discovered later has no URL of its own. A cluster has only database 0.
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
    // Reject parameters instead of ignoring them: someone may rely on them.
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

/** Reads a DATABASE_URL: its hosts, its TLS settings, and the rest of the URL for postgres.js. */
import { readSsl, type Ssl, type SslSettings } from './ssl.ts'

export interface Host {
  /** A name, an IP address without brackets, or the directory of a Unix socket. */
  host: string
  port: number
}

export interface Address {
  /**
   * The URL without the parameters read here. postgres.js would send those to the server, which
   * rejects parameters it does not know.
   */
  url: string
  hosts: Host[]
  /** Decoded, as postgres.js does not. Empty if the URL has none. */
  database: string
  ssl: Ssl | null
  /**
   * sslnegotiation=direct: TLS from the first byte, without asking the server whether it offers
   * TLS.
   */
  direct: boolean
}

const negotiations = ['postgres', 'direct']

const ownParams = [
  'ssl',
  'sslmode',
  'sslrootcert',
  'sslcert',
  'sslkey',
  'sslnegotiation',
  'host',
  'port',
  'target_session_attrs',
]

/**
 * What pool.ts does in any case. postgres.js 3.4 would reconnect to a standby before Postgres 14 at
 * once and forever.
 */
const sessionAttrs = ['any', 'read-write', 'primary']

export function readAddress(databaseUrl: string, env: SslSettings): Address {
  const url = new URL(databaseUrl)
  const params = new URLSearchParams(url.searchParams)
  // libpq would take the last one, `get` takes the first.
  const repeated = ownParams.find((name) => params.getAll(name).length > 1)
  if (repeated !== undefined) throw new Error(`${repeated} is more than once in DATABASE_URL`)
  // postgres.js has its own name for sslmode.
  const alias = params.get('ssl')
  if (alias && !params.has('sslmode'))
    params.set('sslmode', alias === 'true' ? 'verify-full' : alias === 'false' ? 'disable' : alias)
  const attrs = params.get('target_session_attrs')
  if (attrs && !sessionAttrs.includes(attrs))
    throw new Error(`target_session_attrs in DATABASE_URL must be one of ${sessionAttrs.join(', ')}`)
  const negotiation = params.get('sslnegotiation') || 'postgres'
  if (!negotiations.includes(negotiation))
    throw new Error(`sslnegotiation in DATABASE_URL must be one of ${negotiations.join(', ')}`)
  const direct = negotiation === 'direct'
  const ssl = readSsl(params, env)
  if (direct && (ssl === null || ssl.optional))
    throw new Error('sslnegotiation=direct in DATABASE_URL needs an sslmode of require or stricter')
  for (const name of ownParams) url.searchParams.delete(name)

  const names = (params.get('host') || decodeURIComponent(url.hostname)).split(',')
  const ports = (params.get('port') || url.port || '5432').split(',').map(Number)
  if (ports.length !== 1 && ports.length !== names.length)
    throw new Error(`DATABASE_URL has ${names.length} hosts and ${ports.length} ports`)
  return {
    url: url.href,
    hosts: names.map((name, i) => ({
      host: name.replace(/^\[|\]$/g, ''),
      port: ports[i] ?? ports[0]!,
    })),
    database: decodeURIComponent(url.pathname.slice(1)),
    ssl,
    direct,
  }
}

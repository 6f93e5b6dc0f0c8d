/** Where a DATABASE_URL leads: hosts, TLS, and what is left of the URL for postgres.js. */
import { readSsl, type Ssl, type SslSettings } from './ssl.ts'

export interface Host {
  /** A name, an IP address without brackets, or the directory of a Unix socket. */
  host: string
  port: number
}

export interface Address {
  /** The URL without what is read here: postgres.js would send it on to the server, which refuses what it does not know. */
  url: string
  hosts: Host[]
  ssl: Ssl | null
  /** sslnegotiation=direct: TLS from the first byte on, without asking the server whether it offers it. */
  direct: boolean
}

const readHere = ['ssl', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'sslnegotiation', 'host', 'port']

export function readAddress(databaseUrl: string, env: SslSettings): Address {
  const url = new URL(databaseUrl)
  const params = new URLSearchParams(url.searchParams)
  // postgres.js's own name for it.
  const alias = params.get('ssl')
  if (alias && !params.has('sslmode'))
    params.set('sslmode', alias === 'true' ? 'verify-full' : alias === 'false' ? 'disable' : alias)
  for (const name of readHere) url.searchParams.delete(name)

  const names = (params.get('host') || decodeURIComponent(url.hostname)).split(',')
  const ports = (params.get('port') || url.port || '5432').split(',').map(Number)
  return {
    url: url.href,
    hosts: names.map((name, i) => ({
      host: name.replace(/^\[|\]$/g, ''),
      port: ports[i] ?? ports[0]!,
    })),
    ssl: readSsl(params, env),
    direct: params.get('sslnegotiation') === 'direct',
  }
}

/**
 * Who made a request, as the audit log records it: bounded, without the query string, and with keys
 * redacted.
 */
import { isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { wellFormed } from '../../../plugins/shown-text.ts'
import type { TokenFormat } from '../../rules/token.ts'
import type { Actor, RefusalRecord } from '../../stores.ts'

/** What a request says of itself. Any of it may be unknown. */
export interface Sent {
  method?: string | undefined
  /** With the query string, if any; it is not stored. */
  path?: string | undefined
  ip?: string | undefined
  userAgent?: string | undefined
}

type Redacting = Pick<TokenFormat, 'redact'>

const pathMax = 512
const methodMax = 32
const userAgentMax = 256
const ipMax = 64

/**
 * Behind a trusted proxy, `ip` is whatever the proxy wrote, and the zone of an IPv6 address may
 * have any length. A client that reset the connection before it was accepted has none.
 */
const addressOf = (ip: string | undefined) => {
  const address = typeof ip === 'string' ? withoutPort(ip) : ''
  return address.length <= ipMax && isIP(address) !== 0 ? address : null
}

/** Some proxies write ports, too: 203.0.113.7:443 or [2001:db8::7]:443. */
export const withoutPort = (address: string) =>
  address.replace(/^\[([^\]]*)\](?::\d+)?$|^([\d.]+):\d+$/, '$1$2')

/**
 * Postgres stores no NUL and no half of a surrogate pair. No request of Node's has one, but an
 * application may pass on text that it has decoded, and the end of a bounded text may halve a pair.
 */
const storable = (text: string, format: Redacting, max: number) =>
  wellFormed(format.redact(text.replaceAll('\0', '')).slice(0, max))
const storablePath = (target: string, format: Redacting) =>
  storable(target.split('?', 1)[0]!, format, pathMax)

/** The path, safe to log and store: bounded, without the query string, and with keys redacted. */
export const pathOf = (request: FastifyRequest, format: Redacting): string =>
  storablePath(request.raw.url ?? '', format)

export function actorOf(request: FastifyRequest, format: Redacting): Actor {
  const { ip, ...asked } = askedOf(
    {
      method: request.method,
      path: request.raw.url ?? '',
      ip: request.ip,
      userAgent: request.headers['user-agent'],
    },
    format,
  )
  return {
    requestId: request.id,
    keyId: request.caller?.id ?? null,
    operator: request.operator ? `operator:${request.operator}` : null,
    ...asked,
    ip: ip ?? request.socket.remoteAddress ?? null,
  }
}

/** What a client sent, as it may be stored: bounded, without the query string, and with keys redacted. */
export function askedOf(sent: Sent, format: Redacting): Pick<Actor, 'method' | 'path' | 'ip' | 'userAgent'> {
  const { method, path, ip, userAgent } = sent
  return {
    method: typeof method === 'string' ? storable(method, format, methodMax) : null,
    path: typeof path === 'string' ? storablePath(path, format) : null,
    ip: addressOf(ip),
    userAgent: typeof userAgent === 'string' ? storable(userAgent, format, userAgentMax) : null,
  }
}

/** The part of a token of our shape that may be shown: it tells which key it was, or was meant to be. */
export const shownOf = (authorization: string, format: TokenFormat): { key_prefix?: string } => {
  const token = authorization.slice('Bearer '.length)
  return format.hasShape(token) ? { key_prefix: format.displayPrefixOf(token) } : {}
}

/**
 * What the audit log stores about a refused request. If a gateway asked on behalf of its client,
 * these are the method and path that the client sent, and `details.via` is the path that the gateway
 * asked for.
 */
export function refusedRequest(
  request: FastifyRequest,
  format: TokenFormat,
): Omit<RefusalRecord, 'reason' | 'keyId' | 'userId'> {
  const { operator, keyId, ...asked } = actorOf(request, format)
  const original = originalTarget(request, format)
  const details = {
    ...(original && { via: asked.path }),
    ...shownOf(request.headers.authorization ?? '', format),
  }
  return { ...asked, ...original, details: Object.keys(details).length > 0 ? details : null }
}

/**
 * The method and path that a gateway was asked for, if TRUST_PROXY trusts it. Only /v1/verify reads
 * these headers: elsewhere, a plain proxy passes on whatever its client made up.
 */
function originalTarget(request: FastifyRequest, format: Redacting) {
  if (!request.routeOptions.url?.startsWith('/v1/verify') || !request.isFromProxy) return null
  const header = (...names: string[]) =>
    names
      .map((name) => request.headers[name])
      .find(Boolean)
      ?.toString()
  const method = header('x-forwarded-method', 'x-original-method')
  const uri = header('x-forwarded-uri', 'x-original-uri')
  if (method === undefined && uri === undefined) return null
  return {
    ...(method !== undefined && { method: storable(method, format, methodMax) }),
    ...(uri !== undefined && { path: storablePath(uri, format) }),
  }
}

/**
 * Who made a request, as the audit log records it: bounded, without the query string, and with keys
 * redacted.
 */
import { isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'
import type { TokenFormat } from '../../rules/token.ts'
import type { Actor } from '../../stores.ts'

type Redacting = Pick<TokenFormat, 'redact'>

const pathMax = 512
const userAgentMax = 256
const ipMax = 64

/**
 * Behind a trusted proxy, `ip` is whatever the proxy wrote, and the zone of an IPv6 address may
 * have any length. A client that has disconnected has none.
 */
const isAddress = (ip: string | undefined) => ip !== undefined && ip.length <= ipMax && isIP(ip) !== 0

/** The path, safe to log and store: without the query string, and with keys redacted. */
export const pathOf = (request: FastifyRequest, { redact }: Redacting): string =>
  redact(request.raw.url?.split('?', 1)[0] ?? '')

export function actorOf(request: FastifyRequest, format: Redacting): Actor {
  const userAgent = request.headers['user-agent']
  return {
    requestId: request.id,
    keyId: request.caller?.id ?? null,
    operator: request.operator ? `operator:${request.operator}` : null,
    method: request.method,
    path: pathOf(request, format).slice(0, pathMax),
    ip: isAddress(request.ip) ? request.ip : (request.socket.remoteAddress ?? null),
    userAgent: userAgent === undefined ? null : format.redact(userAgent).slice(0, userAgentMax),
  }
}

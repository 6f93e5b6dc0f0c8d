/** What both listeners ask of a request before any route sees it. */
import type { Server } from 'node:http'
import type { FastifyHttpOptions } from 'fastify'
import { ajv } from '../../plugins/validation.ts'
import { lazyCompilers } from './lazy-compilers.ts'
import { OneWriteResponse } from './one-write.ts'

const bodyMaxBytes = 16_384
const headersMaxBytes = 16_384
/** Both count from the opening of the connection, or from its last response. */
const headersTimeoutMs = 10_000
const requestTimeoutMs = 20_000
/**
 * How often to look for timed-out connections. Checking often means closing only a few at a time.
 */
const timeoutCheckMs = 100

export const serverOptions = (newRequestId: () => string) =>
  ({
    logger: false,
    genReqId: newRequestId,
    requestIdHeader: false,
    bodyLimit: bodyMaxBytes,
    requestTimeout: requestTimeoutMs,
    routerOptions: { maxParamLength: 65_536 },
    rewriteUrl: (request) => normalizeTarget(request.url!),
    ajv,
    schemaController: { compilersFactory: lazyCompilers },
    http: {
      headersTimeout: headersTimeoutMs,
      connectionsCheckingInterval: timeoutCheckMs,
      requireHostHeader: false,
      // Whatever NODE_OPTIONS says.
      maxHeaderSize: headersMaxBytes,
      insecureHTTPParser: false,
      ServerResponse: OneWriteResponse,
    },
  }) satisfies FastifyHttpOptions<Server>

/**
 * Turns a request target that the router would reject before any hook runs into one that it looks
 * up, so that the request is authenticated and counted like any other. Absolute form (RFC 9112,
 * 3.2.2) loses its origin; a malformed percent-escape becomes literal text.
 */
function normalizeTarget(target: string): string {
  let path = target
  if (!path.startsWith('/')) path = path.replace(/^https?:\/\/[^/?#]*/i, '') || '/'
  if (!path.startsWith('/')) path = `/${path}`
  if (!path.includes('%')) return path
  const query = path.indexOf('?')
  const [before, after] = query < 0 ? [path, ''] : [path.slice(0, query), path.slice(query)]
  try {
    decodeURIComponent(before)
    return path
  } catch {
    return before.replaceAll('%', '%25') + after
  }
}

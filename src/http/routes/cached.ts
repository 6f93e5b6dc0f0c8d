/** Bodies that never change while the process runs: sent with an ETag, so that asking again is cheap. */
import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'

export interface CachedBody {
  type: string
  text: string
  etag: string
}

/** Short enough for an upgrade to show soon, and long enough for a reader who clicks around. */
const maxAgeS = 300
export const cacheControl = `public, max-age=${maxAgeS}`

export const cachedBody = (type: string, text: string): CachedBody => ({
  type,
  text,
  etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`,
})

export function sendCached(request: FastifyRequest, reply: FastifyReply, { type, text, etag }: CachedBody) {
  reply.header('etag', etag).header('cache-control', cacheControl)
  // RFC 9110, 13.1.2: a list, or `*`. A proxy that compresses makes our tags weak.
  const known = (request.headers['if-none-match'] ?? '')
    .split(',')
    .map((tag) => tag.trim().replace(/^W\//, ''))
  if (known.includes(etag) || known.includes('*')) return reply.code(304).send()
  return reply.type(type).send(text)
}

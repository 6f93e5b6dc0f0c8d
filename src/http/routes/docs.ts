/**
 * Paths that need no key and are never counted: the API document, the pages made from it and from
 * the error table, and what browsers and tools request by themselves. Without a route, each of
 * those requests would be a refusal to record.
 */
import type { FastifyInstance, RouteHandlerMethod, RouteShorthandOptions } from 'fastify'
import { ApiError } from '../../../plugins/api-error.ts'
import { NotModified, OpenApiDocument } from '../../../schemas/openapi.ts'
import { type CachedBody, cacheControl, cachedBody, sendCached } from './cached.ts'
import { errorIndex, errorPages } from './pages/errors.ts'
import { contentSecurityPolicy } from './pages/html.ts'
import { reference } from './pages/reference.ts'

export interface DocsRoutesOptions {
  /** The path of BASE_URL, without a trailing slash. Links begin with it. */
  basePath: string
}

export const publicPaths = ['/', '/favicon.ico', '/docs', '/docs/*', '/openapi.json'] as const

const iconMaxAgeS = 86_400
/** Pages are not part of the API. */
const hidden = { schema: { hide: true } }

export async function docsRoutes(app: FastifyInstance, { basePath }: DocsRoutesOptions) {
  let made: Map<string, CachedBody> | undefined
  /** Made when first asked for: the document is whole once all routes are known. */
  const bodyOf = (name: string) => {
    made ??= bodies(app, basePath)
    return made.get(name)
  }

  app.addHook('onSend', (_request, reply, _payload, done) => {
    reply.header('content-security-policy', contentSecurityPolicy)
    done()
  })
  app.get('/', hidden, (_request, reply) =>
    reply.header('cache-control', cacheControl).redirect(`${basePath}/docs`),
  )
  /** With a 204 or 304, Fastify's own HEAD routes send `content-length: 0` (RFC 9110, 8.6). */
  function get(path: string, options: RouteShorthandOptions, handler: RouteHandlerMethod) {
    app.head(path, hidden, handler)
    app.get(path, options, handler)
  }
  get('/favicon.ico', hidden, (_request, reply) =>
    reply.code(204).header('cache-control', `public, max-age=${iconMaxAgeS}`).send(),
  )
  for (const path of ['/docs', '/docs/*']) {
    get(path, hidden, (request, reply) => {
      // As the router has decoded it.
      const { '*': rest = '' } = request.params as { '*'?: string }
      const page = bodyOf(`/docs/${rest}`.replace(/\/$/, ''))
      if (page === undefined) throw new ApiError('route_not_found')
      return sendCached(request, reply, page)
    })
  }
  const schema = {
    operationId: 'getDocument',
    summary: 'Get this document',
    tags: ['Documentation'],
    response: { 200: OpenApiDocument, 304: NotModified },
    sends: ['etag', 'cache-control', 'content-security-policy'],
  } as const
  get('/openapi.json', { schema }, (request, reply) => sendCached(request, reply, bodyOf('/openapi.json')!))
}

/** Everything that can be asked for, by path. */
function bodies(app: FastifyInstance, basePath: string): Map<string, CachedBody> {
  const document = app.openapi()
  const pages = new Map([
    [
      '/docs',
      reference(document, {
        documentUrl: `${basePath}/openapi.json`,
        errorsUrl: `${basePath}/docs/errors`,
        credential: 'KEY',
      }),
    ],
    ['/docs/errors', errorIndex(basePath)],
  ])
  for (const [code, page] of errorPages(document, basePath)) pages.set(`/docs/errors/${code}`, page)
  const cached = new Map<string, CachedBody>()
  for (const [path, page] of pages) cached.set(path, cachedBody('text/html; charset=utf-8', page))
  return cached.set('/openapi.json', cachedBody('application/json; charset=utf-8', JSON.stringify(document)))
}

/**
 * Answers requests that match no route: 405 with Allow if the path exists with another method,
 * otherwise 404. Register this plugin before the routes, and after the hooks that must also run for
 * unknown routes. Await the registration: the plugin learns of the routes in its scope as they are
 * added.
 */
import fp from 'fastify-plugin'
import { ApiError } from './api-error.ts'

export interface UnknownRouteOptions {
  /** What to do about a 404, if the application has other endpoints than the service. */
  suggestion?: string
  /** Paths outside this scope that answer GET and HEAD: with another method they are a 405 too. */
  pages?: readonly string[]
}

export default fp<UnknownRouteOptions>(
  async (app, { pages = [], ...advice }) => {
    const noSuchRoute = () => new ApiError('route_not_found', advice)
    const known = new Map<string, { matches: RegExp; methods: string[] }>()
    for (const url of pages) known.set(url, { matches: patternOf(url), methods: ['GET', 'HEAD'] })

    app.addHook('onRoute', ({ url, method }) => {
      const matches = patternOf(url)
      const route = known.get(url) ?? { matches, methods: [] }
      known.set(url, route)
      route.methods.push(...[method].flat())
    })

    // In a hook and not in the handler, which runs after the body has been read: an invalid body
    // would be reported instead.
    app.addHook('onRequest', (request, _reply, done) => {
      if (!request.is404) return done()
      const path = decoded(request.url.split(/[?#]/, 1)[0]!)
      // /admin/keys/scan is also a /admin/keys/:id.
      const routes = [...known.values()].filter(({ matches }) => matches.test(path))
      const methods = new Set(routes.flatMap(({ methods }) => methods))
      if (methods.size === 0 || methods.has(request.method)) return done(noSuchRoute())
      done(new ApiError('method_not_allowed', { headers: { allow: [...methods].join(', ') } }))
    })
    app.setNotFoundHandler(() => {
      throw noSuchRoute()
    })
  },
  { name: 'unknown-route', dependencies: ['errors'] },
)

/** Decodes a path as the router does. A path that cannot be decoded matches no route. */
function decoded(path: string): string {
  try {
    return decodeURI(path)
  } catch {
    return path
  }
}

/** Up to four levels of nested parentheses. */
const nested = (inner: string) => String.raw`\((?:[^()\\]|\\.|${inner})*\)`
const parentheses = nested(nested(nested(nested('(?!)'))))
/** An optional parameter at the end, a colon, a parameter with its own pattern if any, a wildcard. */
const special = new RegExp(String.raw`(/:[^/()]+\?(?=/?$)|::|:[^/(.-]+(?:${parentheses})?|\*)`)

/** Turns a route's path into a pattern, as the router reads it. */
function patternOf(url: string): RegExp {
  const pattern = url.split(special).map((part, i) => {
    if (i % 2 === 0) return part.replace(/[.+?^${}()|[\]\\]/g, '\\$&')
    if (part === '*') return '.*'
    if (part === '::') return ':'
    if (part.endsWith('?')) return '(?:/[^/]*)?'
    const parameterPattern = /\((.*)\)$/.exec(part)?.[1]
    return parameterPattern === undefined ? '[^/]*' : `(${parameterPattern.replace(/^\^|\$$/g, '')})`
  })
  return new RegExp(`^${pattern.join('')}$`)
}

/**
 * What no route answers: 405 with Allow where the path is known by another method, else 404.
 * Register it before the routes and after the hooks that are to run for unknown
 * routes too, and await the registration: it learns of the routes of its scope as they are added.
 */
import fp from 'fastify-plugin'
import { ApiError } from './api-error.ts'

export default fp(
  async (app) => {
    const known = new Map<string, { matches: RegExp; methods: string[] }>()

    app.addHook('onRoute', ({ url, method }) => {
      const matches = patternOf(url)
      const route = known.get(url) ?? { matches, methods: [] }
      known.set(url, route)
      for (const one of [method].flat()) if (!route.methods.includes(one)) route.methods.push(one)
    })

    // In a hook and not in the handler, which comes after the body has been read: a bad one would be answered instead.
    app.addHook('onRequest', (request, _reply, done) => {
      if (!request.is404) return done()
      const path = decoded(request.url.split(/[?#]/, 1)[0]!)
      const route = [...known.values()].find(({ matches }) => matches.test(path))
      if (!route || route.methods.includes(request.method)) return done(new ApiError('route_not_found'))
      done(new ApiError('method_not_allowed', { headers: { allow: route.methods.join(', ') } }))
    })
    app.setNotFoundHandler(() => {
      throw new ApiError('route_not_found')
    })
  },
  { name: 'unknown-route', dependencies: ['errors'] },
)

/** As the router reads it. What cannot be decoded is no path of ours. */
function decoded(path: string): string {
  try {
    return decodeURI(path)
  } catch {
    return path
  }
}

/** A route's path as a pattern: a parameter with its own pattern or none, a wildcard, and everything else as it is written. */
function patternOf(url: string): RegExp {
  const parts = url.split(/(:[A-Za-z0-9_]+(?:\([^)]*\))?|\*)/)
  const pattern = parts.map((part, i) => {
    if (i % 2 === 0) return part.replace(/[.+?^${}()|[\]\\]/g, '\\$&')
    if (part === '*') return '.*'
    const own = /\(\^?(.*?)\$?\)$/.exec(part)?.[1]
    return own ?? '[^/]*'
  })
  return new RegExp(`^${pattern.join('')}$`)
}

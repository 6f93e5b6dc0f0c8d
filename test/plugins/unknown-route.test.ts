// A request without a route is 405 with Allow if its path has other methods, else 404.
import type { FastifyInstance, HTTPMethods } from 'fastify'
import t, { type Test } from 'tap'
import unknownRoute from '../../plugins/unknown-route.ts'
import { envelopeOf, otherApp } from './other-app.ts'

function withRoutes(t: Test, routes: (scope: FastifyInstance) => void) {
  const { app } = otherApp(t)
  app.register(unknownRoute)
  app.register(async (scope) => routes(scope))
  return async (method: HTTPMethods, url: string) => {
    const { statusCode, headers, body } = await app.inject({ method: method as 'GET', url })
    if (statusCode === 200) return 'answered'
    const { type, code, param } = envelopeOf(body)
    if (param !== '') throw new Error(`param is ${param}`)
    const allow = headers.allow === undefined ? null : String(headers.allow).split(', ').sort().join(' ')
    return [statusCode, type, code, allow]
  }
}

const absent = [404, 'not_found_error', 'route_not_found', null]
const otherMethod = (allow: string) => [405, 'invalid_request_error', 'method_not_allowed', allow]

t.test('an unknown path is 404 for every method', async (t) => {
  const ask = withRoutes(t, (scope) => scope.get('/known', async () => 'ok'))
  for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const) {
    t.strictSame(await ask(method, '/unknown'), absent, method)
  }
  for (const url of ['/', '/knownn', '/know', '/known/more', '/KNOWN', '/x?y=/known', '//known']) {
    t.strictSame(await ask('GET', url), absent, url)
  }
})

t.test('a known path with another method is 405 and lists its methods', async (t) => {
  const ask = withRoutes(t, (scope) => {
    scope.get('/keys', async () => 'ok')
    scope.post('/keys', async () => 'ok')
    scope.delete('/other', async () => 'ok')
    scope.route({ method: ['PUT', 'PATCH'], url: '/both', handler: async () => 'ok' })
  })
  t.strictSame(await ask('DELETE', '/keys'), otherMethod('GET HEAD POST'))
  t.strictSame(await ask('DELETE', '/keys?limit=1'), otherMethod('GET HEAD POST'))
  t.strictSame(await ask('DELETE', '/%6beys'), otherMethod('GET HEAD POST'), 'encoded where it need not be')
  t.strictSame(await ask('GET', '/other'), otherMethod('DELETE'))
  t.strictSame(await ask('POST', '/both'), otherMethod('PATCH PUT'))
  t.equal(await ask('GET', '/keys'), 'answered')
})

t.test('a path of two patterns lists the methods of both', async (t) => {
  const ask = withRoutes(t, (scope) => {
    scope.delete('/keys/:id', async () => 'ok')
    scope.post('/keys/scan', async () => 'ok')
  })
  t.strictSame(await ask('PUT', '/keys/scan'), otherMethod('DELETE POST'))
  t.strictSame(await ask('PUT', '/keys/1'), otherMethod('DELETE'))
})

t.test('a method with several routes of one path is listed once', async (t) => {
  const ask = withRoutes(t, (scope) => {
    for (const host of ['a.example', 'b.example'])
      scope.get('/known', { constraints: { host } }, async () => 'ok')
  })
  t.strictSame(await ask('POST', '/known'), otherMethod('GET HEAD'))
})

t.test('a parameter matches any value', async (t) => {
  const ask = withRoutes(t, (scope) => {
    scope.get('/users/:user/keys/:key', async () => 'ok')
    scope.get('/users/:user', async () => 'ok')
  })
  t.strictSame(await ask('POST', '/users/1/keys/2'), otherMethod('GET HEAD'))
  t.strictSame(await ask('POST', '/users/a%20b/keys/%2F'), otherMethod('GET HEAD'))
  t.strictSame(await ask('PUT', '/users/1'), otherMethod('GET HEAD'))
  t.strictSame(await ask('POST', '/users/1/keys'), absent)
  t.strictSame(await ask('POST', '/users/1/keys/2/3'), absent)
})

t.test('a dot in a path matches a dot only', async (t) => {
  const ask = withRoutes(t, (scope) => scope.get('/openapi.json', async () => 'ok'))
  t.strictSame(await ask('POST', '/openapi.json'), otherMethod('GET HEAD'))
  t.strictSame(await ask('GET', '/openapi-json'), absent)
  t.strictSame(await ask('POST', '/openapiXjson'), absent)
})

t.test('a wildcard matches everything below it', async (t) => {
  const ask = withRoutes(t, (scope) => scope.get('/files/*', async () => 'ok'))
  t.equal(await ask('GET', '/files/a/b'), 'answered')
  t.strictSame(await ask('POST', '/files/a/b'), otherMethod('GET HEAD'))
  t.strictSame(await ask('POST', '/file'), absent)
  t.strictSame(await ask('GET', '/files'), absent)
})

t.test('a parameter with a pattern or an ending matches only those', async (t) => {
  const ask = withRoutes(t, (scope) => {
    scope.get('/images/:name.png', async () => 'ok')
    scope.get('/years/:year(^\\d{4}$)', async () => 'ok')
    scope.get('/logo.:ext(^(?:png|jpe?g(?:2)?)$)', async () => 'ok')
    scope.get('/smiles/:smile(:\\)|:\\()', async () => 'ok')
  })
  t.strictSame(await ask('POST', '/images/a.png'), otherMethod('GET HEAD'))
  t.strictSame(await ask('POST', '/images/a.gif'), absent)
  t.strictSame(await ask('POST', '/years/2026'), otherMethod('GET HEAD'))
  t.strictSame(await ask('POST', '/years/soon'), absent)
  for (const ending of ['png', 'jpg', 'jpeg2']) {
    t.equal(await ask('GET', `/logo.${ending}`), 'answered')
    t.strictSame(await ask('POST', `/logo.${ending}`), otherMethod('GET HEAD'))
  }
  for (const url of ['/logo.gif', '/logo.png2', '/logo.']) t.strictSame(await ask('POST', url), absent)
  t.strictSame(await ask('POST', '/smiles/:)'), otherMethod('GET HEAD'))
  t.strictSame(await ask('POST', '/smiles/:'), absent)
})

t.test('an optional parameter may be left out, and a doubled colon is one', async (t) => {
  const ask = withRoutes(t, (scope) => {
    scope.get('/users/:user?', async () => 'ok')
    scope.get('/rotate::all', async () => 'ok')
  })
  for (const url of ['/users', '/users/', '/users/1', '/rotate:all']) {
    t.equal(await ask('GET', url), 'answered', url)
    t.strictSame(await ask('POST', url), otherMethod('GET HEAD'), url)
  }
  for (const url of ['/users/1/2', '/usersx', '/rotate', '/rotate::all'])
    t.strictSame(await ask('POST', url), absent, url)
})

t.test('Allow never lists the method that was refused', async (t) => {
  const { app } = otherApp(t)
  app.register(unknownRoute)
  app.register(async (scope) => {
    scope.get('/versioned', { constraints: { host: 'a.example' } }, async () => 'ok')
  })
  const { statusCode } = await app.inject({ url: '/versioned', headers: { host: 'b.example' } })
  t.equal(statusCode, 404)
})

t.test('the hooks of its scope run for unknown routes', async (t) => {
  const { app } = otherApp(t)
  const ran: string[] = []
  app.register(async (scope) => {
    scope.addHook('onRequest', async (request) => void ran.push(request.url))
    scope.register(unknownRoute)
    scope.get('/known', async () => 'ok')
  })
  await app.inject('/unknown')
  await app.inject({ method: 'POST', url: '/known' })
  t.strictSame(ran, ['/unknown', '/known'])
})

t.test('the plugin knows the pages that another scope has', async (t) => {
  const { app } = otherApp(t)
  app.get('/pages/*', async () => 'ok')
  app.register(async (scope) => {
    scope.register(unknownRoute, { pages: ['/pages/*'] })
  })
  const { statusCode, headers } = await app.inject({ method: 'POST', url: '/pages/a' })
  t.strictSame([statusCode, headers.allow], [405, 'GET, HEAD'])
})

t.test('the plugin answers for its own scope only, under its prefix', async (t) => {
  const { app } = otherApp(t)
  app.setNotFoundHandler((_request, reply) => reply.code(404).send('own'))
  app.register(
    async (scope) => {
      // Awaited: else the route below would be declared before the plugin listens for routes.
      await scope.register(unknownRoute)
      scope.get('/known', async () => 'ok')
    },
    { prefix: '/api' },
  )
  t.equal((await app.inject('/unknown')).body, 'own')
  t.equal(envelopeOf((await app.inject('/api/unknown')).body).code, 'route_not_found')
  t.equal((await app.inject({ method: 'PUT', url: '/api/known' })).statusCode, 405)
})

// A query parameter that no route reads is refused, not ignored.
import t from 'tap'
import noQuery from '../../plugins/no-query.ts'
import { ajv } from '../../plugins/validation.ts'
import { envelopeOf, otherApp } from './other-app.ts'

t.test('a query is refused unless the route has a schema for it or is hidden', async (t) => {
  const { app } = otherApp(t, { ajv: ajv as never })
  app.get('/before', async () => 'ok')
  app.register(noQuery)
  app.register(async (scope) => {
    const querystring = { type: 'object', properties: { limit: { type: 'string' } } }
    scope.get('/plain', async () => 'ok')
    scope.get(
      '/described',
      { schema: { description: 'has a schema, but none of its query' } },
      async () => 'ok',
    )
    scope.get('/list', { schema: { querystring } }, async () => 'ok')
    scope.get('/other-name', { schema: { query: querystring } as object }, async () => 'ok')
    scope.get('/hidden', { schema: { hide: true } as object }, async () => 'ok')
  })
  for (const url of ['/plain', '/described', '/plain?']) t.equal((await app.inject(url)).body, 'ok', url)
  for (const url of ['/list?limit=1', '/other-name?limit=1', '/hidden?x=1', '/before?x=1'])
    t.equal((await app.inject(url)).body, 'ok', url)
  for (const url of ['/plain?x=1', '/described?x=', '/plain?x'])
    t.match(envelopeOf((await app.inject(url)).body), { code: 'unknown_parameter', param: 'x' }, url)
})

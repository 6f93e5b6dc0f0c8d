// Schemas are compiled when a request first needs them.
import Fastify from 'fastify'
import t from 'tap'
import { serverOptions } from '../../src/http/server-options.ts'

t.test('a start compiles no schema, and a request those of its route', async (t) => {
  const app = Fastify(serverOptions(() => 'req_1'))
  t.teardown(() => app.close())
  const member = (type: string) => ({ type: 'object', properties: { a: { type } } })
  const post = (url: string, body: object, response: object) =>
    app.post(url, { schema: { body, response: { 200: response } } }, async () => ({ a: 'x', b: 'y' }))
  post('/good', member('string'), member('string'))
  post('/body', member('nonsense'), member('string'))
  post('/response', member('string'), member('nonsense'))
  await app.ready()
  const ask = async (url: string, a: unknown) => {
    const { statusCode, body } = await app.inject({ method: 'POST', url, payload: { a } })
    return [statusCode, body.slice(0, 9)]
  }
  for (let times = 0; times < 2; times++) {
    t.strictSame(await ask('/good', 'x'), [200, '{"a":"x"}'])
    t.strictSame(await ask('/good', 1), [400, '{"statusC'])
    t.equal((await ask('/body', 'x'))[0], 500)
    t.equal((await ask('/response', 'x'))[0], 500)
  }
})

// What is asked where: methods that a route does not know, and paths that are no route, for a client with a key.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const { id, token } = await makeCaller(instance)

const routes: Record<string, string[]> = {
  '/v1/keys': ['GET', 'POST'],
  [`/v1/keys/${id}`]: ['GET', 'PATCH', 'DELETE'],
  '/v1/keys/apk_0': ['GET', 'PATCH', 'DELETE'],
  '/v1/verify': ['GET'],
}
for (const [path, known] of Object.entries(routes)) {
  t.test(`a wrong method on ${path.replace(id, '{id}')} is 405 and says which are right`, async (t) => {
    const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PURGE', 'PROPFIND']
    for (const method of methods.filter((method) => !known.includes(method))) {
      const answer = await sendRaw(instance.port, method, path, [`Authorization: Bearer ${token}`])
      expectError(t, answer, 'method_not_allowed')
      expectRated(t, answer)
      const allowed = answer.headers.get('allow')!.split(/, */)
      t.same(allowed.filter((one) => one !== 'HEAD').sort(), known.toSorted(), method)
    }
  })
}

for (const path of [
  '/v1',
  '/v2/keys',
  '/v1/key',
  '/v1/keys/apk_0/more',
  '/V1/keys',
  '/%',
  '/%zz',
  '/v1/%c3',
  '/v1/%00',
]) {
  t.test(`the path ${path} is no route`, async (t) => {
    const answer = await sendRaw(instance.port, 'GET', path, [`Authorization: Bearer ${token}`])
    expectError(t, answer, 'route_not_found')
    expectRated(t, answer)
  })
}

t.test('a malformed percent-escape for an id is the 404 of an id', async (t) => {
  const answer = await sendRaw(instance.port, 'GET', '/v1/keys/%zz', [`Authorization: Bearer ${token}`])
  expectError(t, answer, 'not_found', 'id')
  expectRated(t, answer)
})

// What is not there: ids, paths, and methods of a path. test/security/uniformity.test.ts has the
// ids that are one and the same 404.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { type RawAnswer, sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const caller = await makeCaller(instance)
const stranger = await makeCaller(instance)
const absent = `apk_${'0'.repeat(caller.id.length - 4)}`

/** Without what counting changes from request to request. */
const uniform = (answer: RawAnswer) =>
  answer.uniform.replace(/^(x-ratelimit-(?:remaining|reset)): .*$/gim, '$1: …')

const send = (method: string, target: string, body?: string) =>
  sendRaw(
    instance.port,
    method,
    target,
    [
      `Authorization: Bearer ${caller.token}`,
      ...(body === undefined ? [] : ['Content-Type: application/json']),
    ],
    body,
  )

t.test('an absent id is the same 404 of GET, PATCH, DELETE and a rotation', async (t) => {
  const path = `/v1/keys/${absent}`
  const answers = [
    await send('GET', path),
    await send('PATCH', path, '{"name":"taken"}'),
    await send('DELETE', path),
    await send('POST', `${path}/rotate`),
  ]
  expectError(t, answers[0]!, 'not_found')
  expectRated(t, answers[0]!)
  t.equal(new Set(answers.map(uniform)).size, 1)
  const ofList = await send('GET', `/v1/keys?starting_after=${absent}`)
  expectError(t, ofList, 'not_found', 'starting_after')
  expectRated(t, ofList)
})

t.test("a bad body does not reveal whether a stranger's key exists", async (t) => {
  for (const body of ['{}', '{"name":""}', '{"nope":1}', '{"name":', '[]']) {
    const patch = (id: string) => send('PATCH', `/v1/keys/${id}`, body)
    t.equal(uniform(await patch(stranger.id)), uniform(await patch(absent)), body)
  }
})

t.test("a stranger's id is the same 404 after its owner used, changed and revoked it", async (t) => {
  const { id, token } = await makeCaller(instance)
  const seen = async () => uniform(await send('GET', `/v1/keys/${id}`))
  const before = await seen()
  await instance.ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 'changed' } })
  t.equal(await seen(), before)
  await instance.ask('DELETE', `/v1/keys/${id}`, { token })
  t.equal(await seen(), before)
})

t.test('an unknown path is 404', async (t) => {
  const paths = [
    '/v1',
    '/v2/keys',
    '/v1/key',
    '/v1/keys/apk_0/more',
    '/V1/keys',
    '/%',
    '/%zz',
    '/v1/%c3',
    '/v1/%00',
  ]
  for (const path of paths) {
    const answer = await send('GET', path)
    expectError(t, answer, 'route_not_found')
    expectRated(t, answer)
  }
})

t.test('a wrong method is 405 and names the right ones', async (t) => {
  const allowed: Record<string, string[]> = {
    '/v1/keys': ['GET', 'POST'],
    [`/v1/keys/${caller.id}`]: ['DELETE', 'GET', 'PATCH'],
    '/v1/keys/apk_0': ['DELETE', 'GET', 'PATCH'],
    '/v1/keys/apk_0/rotate': ['POST'],
    '/openapi.json': ['GET'],
    '/docs/errors/not_found': ['GET'],
  }
  const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PURGE', 'PROPFIND']
  for (const [path, right] of Object.entries(allowed)) {
    for (const method of methods.filter((method) => !right.includes(method))) {
      const answer = await send(method, path)
      expectError(t, answer, 'method_not_allowed')
      expectRated(t, answer)
      const allow = answer.headers.get('allow')!.split(/, */)
      t.same(allow.filter((one) => one !== 'HEAD').sort(), right, `${method} ${path}`)
    }
  }
})

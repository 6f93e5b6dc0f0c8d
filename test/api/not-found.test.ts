// What is not there: ids (absent, mistyped and a stranger's are one 404, spec section 7.2), paths, and methods of a path.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { type RawAnswer, sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const caller = await makeCaller(instance)
const stranger = await makeCaller(instance)
const revoked = await makeCaller(instance)
await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token: revoked.token })

const absent = `apk_${'0'.repeat(caller.id.length - 4)}`
const missing: Record<string, string> = {
  "a stranger's": stranger.id,
  "a stranger's revoked": revoked.id,
  "the caller's own with another prefix": caller.id.replace('apk_', 'akp_'),
  "the caller's own without its prefix": caller.id.slice(4),
  "the caller's own in capitals": caller.id.toUpperCase(),
  "the caller's own and more": `${caller.id}0`,
  "the start of the caller's own": caller.id.slice(0, -1),
  "the caller's own with an escaped NUL": `${caller.id}%00`,
  "a user's": caller.userId,
  "an audit entry's": 'aud_0000000000',
  'no id': '',
  'a malformed percent-escape': '%zz',
  'a malformed percent-escape at the end': `${caller.id}%`,
  'an overlong UTF-8 escape': '%c0%af',
  'an escaped NUL': '%00',
  'an escaped slash': '%2f',
  'an escaped newline': '%0d%0a',
  'a quote': "'%20or%20'1'='1",
  'an emoji': '%F0%9F%94%91',
  '300 characters': `apk_${'a'.repeat(296)}`,
  '10,000 characters': `apk_${'a'.repeat(9996)}`,
  'a member of every object': '__proto__',
}

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
const byId: Record<string, (id: string) => Promise<RawAnswer>> = {
  GET: (id) => send('GET', `/v1/keys/${id}`),
  PATCH: (id) => send('PATCH', `/v1/keys/${id}`, '{"name":"taken"}'),
  DELETE: (id) => send('DELETE', `/v1/keys/${id}`),
  rotate: (id) => send('POST', `/v1/keys/${id}/rotate`),
  starting_after: (id) => send('GET', `/v1/keys?starting_after=${id}`),
}

for (const [how, ask] of Object.entries(byId)) {
  t.test(`every missing id is the same 404 of ${how}, byte for byte`, async (t) => {
    const reference = await ask(absent)
    expectError(t, reference, 'not_found', how === 'starting_after' ? 'starting_after' : 'id')
    expectRated(t, reference)
    for (const [what, id] of Object.entries(missing))
      t.equal(uniform(await ask(id)), uniform(reference), what)
  })
}

t.test("a stranger's requests have changed nothing", async (t) => {
  const { status, body } = await instance.ask('GET', `/v1/keys/${stranger.id}`, { token: stranger.token })
  t.equal(status, 200)
  t.equal(body.name, stranger.name)
})

t.test('the 404s of GET, PATCH, DELETE and a rotation are the same', async (t) => {
  const answers = await Promise.all(
    [byId.GET!, byId.PATCH!, byId.DELETE!, byId.rotate!].map((ask) => ask(absent)),
  )
  t.equal(new Set(answers.map(uniform)).size, 1)
})

t.test("a bad body does not reveal whether a stranger's key exists", async (t) => {
  for (const body of ['{}', '{"name":""}', '{"nope":1}', '{"name":', '[]']) {
    const patch = (id: string) => send('PATCH', `/v1/keys/${id}`, body)
    t.equal(uniform(await patch(stranger.id)), uniform(await patch(absent)), body)
  }
})

t.test("a stranger's id is the same 404 after its owner used, changed and revoked it", async (t) => {
  const { id, token } = await makeCaller(instance)
  const before = uniform(await byId.GET!(id))
  await instance.ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 'changed' } })
  t.equal(uniform(await byId.GET!(id)), before)
  await instance.ask('DELETE', `/v1/keys/${id}`, { token })
  t.equal(uniform(await byId.GET!(id)), before)
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

// The client against the real service: every operation, errors as they come, and lists over several pages.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { createAdminClient, createClient, LatchkeyError } from '../../src/client/index.ts'
import { makeCaller, startInstance, startOps } from '../instance.ts'
import { listeners } from '../openapi/documents.ts'
import { useServices } from '../services/index.ts'

const token = 'a-token-of-the-operator'
const instance = await startInstance(t, await useServices(t), { OPS_TOKEN: token })
const ops = await startOps(t, instance)
const { token: key, userId } = await makeCaller(instance)

/** What was asked, as `GET /v1/keys/{id}`. */
const asked = new Set<string>()
const recording = (url: string, init: RequestInit) => {
  const path = new URL(url).pathname.replace(/(apk|usr)_[0-9a-z]+/, '{id}')
  asked.add(`${init.method} ${path}`)
  return fetch(url, init)
}
const latchkey = createClient({ baseUrl: instance.url, key, fetch: recording })
const admin = createAdminClient({ baseUrl: `${ops.url}/`, token, fetch: recording })

const readDocs = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8')

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const entries: T[] = []
  for await (const entry of list) entries.push(entry)
  return entries
}

t.test('a key is created, read, changed, rotated and revoked', async (t) => {
  const { plain_key, ...created } = await latchkey.keys.create({ name: 'nightly', rate_limit_rpm: 5 })
  t.same(await latchkey.keys.get(created.id), created)
  t.equal((await latchkey.keys.update(created.id, { name: 'daily' })).name, 'daily')
  t.equal((await createClient({ baseUrl: instance.url, key: plain_key }).verify()).key_id, created.id)
  const successor = await latchkey.keys.rotate(created.id)
  t.equal(successor.rate_limit_rpm, 5)
  t.type((await latchkey.keys.get(created.id)).revoked_at, 'number')
  t.type((await latchkey.keys.revoke(successor.id)).revoked_at, 'number')
  t.equal((await latchkey.keys.usage(created.id, { step: 'hour' })).key_id, created.id)
  t.equal((await latchkey.verify()).user_id, userId)
})

t.test('a list reads page after page, and stops when its reader does', async (t) => {
  const names = ['a', 'b', 'c', 'd', 'e']
  for (const name of names) await latchkey.keys.create({ name })
  const active = await all(latchkey.keys.list({ limit: 2, status: 'active' }))
  t.strictSame(
    active.map(({ name }) => name),
    [...names.reverse(), 'a key'],
  )
  for await (const { name } of latchkey.keys.list({ limit: 1 })) {
    t.equal(name, 'e')
    break
  }
})

t.test('an error carries what the envelope says', async (t) => {
  const error: LatchkeyError = await latchkey.keys.get('apk_nonesuch').then(t.fail, (error) => error)
  t.type(error, LatchkeyError)
  const { status, code, param, docsUrl, suggestion, requestId } = error
  t.strictSame([status, code, param], [404, 'not_found', 'id'])
  t.equal(docsUrl, 'http://latchkey.test/docs/errors/not_found')
  t.match(suggestion, 'Check the id')
  const [entry] = await all(admin.audit({ event: 'key.created', limit: 1 }))
  t.match(requestId, /^req_/)
  t.match(entry?.request_id, /^req_/)
  const refused = createClient({ baseUrl: instance.url, key: 'lk_nonesuch' })
  await t.rejects(refused.verify(), { status: 401, code: 'unauthorized' })
})

t.test('a redirect is not followed: a POST would become a GET', async (t) => {
  const proxy = createServer((request, response) => {
    if (request.url === '/v1/keys') response.writeHead(301, { location: '/elsewhere' })
    response.end('{"object":"list","data":[]}')
  }).listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  t.teardown(() => proxy.close().closeAllConnections())
  const baseUrl = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
  const redirected = createClient({ baseUrl, key }).keys.create({ name: 'a' })
  await t.rejects(redirected, { status: 301, code: 'unexpected_response' })
})

t.test('the example of the documentation runs as printed', async (t) => {
  const [example] = /(?<=```js\n)import \{ createClient[\s\S]*?(?=```)/.exec(readDocs('client.md'))!
  const here = example!
    .replace("'latchkey/client'", JSON.stringify(new URL('../../src/client/index.ts', import.meta.url)))
    .replace("'http://localhost:3000'", JSON.stringify(instance.url))
    .replace('process.env.KEY', JSON.stringify(key))
    .replace('console.log', 'void ')
  await t.resolves(import(`data:text/javascript,${encodeURIComponent(`${here}\nexport default data`)}`))
})

t.test('an operator does the same for any user', async (t) => {
  const user = await admin.users.create({ name: 'Ada', external_id: 'crm 7&8' })
  t.same(await all(admin.users.list({ external_id: 'crm 7&8' })), [user])
  t.equal((await admin.users.update(user.id, { name: 'Ada Lovelace' })).name, 'Ada Lovelace')
  t.equal((await admin.users.get(user.id)).name, 'Ada Lovelace')
  const { id, plain_key: text } = await admin.keys.create({ user_id: user.id, name: 'hers' })
  t.match(await admin.keys.scan({ text }), { keys: [{ id, state: 'active' }] })
  t.equal((await admin.keys.update(id, { rate_limit_rpm: 7 })).rate_limit_rpm, 7)
  t.equal((await admin.keys.get(id)).rate_limit_rpm, 7)
  t.equal((await admin.keys.usage(id)).key_id, id)
  t.equal((await admin.lookup(id)).type, 'key')
  t.type((await admin.instances()).instances, Array)
  t.type((await admin.counters({ minute: 'last', limit: 5 })).keys, Array)
  const successor = await admin.keys.rotate(id, { expires_in: 60 })
  t.type((await admin.keys.revoke(successor.id)).revoked_at, 'number')
  t.equal((await all(admin.keys.list({ user_id: user.id, limit: 1 }))).length, 2)
  t.same(await admin.users.revokeKeys(user.id), { revoked: 1 })
  t.type((await admin.users.delete(user.id)).deleted_at, 'number')
})

t.test('the client has every operation of both documents', async (t) => {
  const { public: callers, admin: operators } = await listeners()
  const isForTools = (path: string) =>
    /^\/(healthz|readyz|metrics|admin\/events|admin\/keys\/scan\/github)$|\/openapi\.json$/.test(path)
  const documented = [callers, operators].flatMap(({ document: { paths } }) =>
    Object.entries(paths).flatMap(([path, methods]) =>
      isForTools(path) ? [] : Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    ),
  )
  t.strictSame([...asked].sort(), documented.sort())
})

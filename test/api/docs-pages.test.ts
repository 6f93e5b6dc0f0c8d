// What an error's docs_url leads to: a page of the service's own, open to everybody.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
import { errors, expectError, isRated } from './expect-error.ts'

const instance = await startInstance(t, await useServices(t))

for (const [code, [status]] of Object.entries(errors)) {
  t.test(`the page of ${code} opens without a key and names it`, async (t) => {
    const answer = await instance.ask('GET', `/docs/errors/${code}`)
    t.equal(answer.status, 200)
    t.match(answer.headers.get('content-type'), /^text\/html; *charset=utf-8/i)
    t.match(answer.text, /^<!doctype html>/i)
    t.match(answer.text, code)
    t.match(answer.text, String(status))
    t.match(answer.headers.get('x-request-id'), /^req_/)
    t.notOk(isRated(answer), 'nobody is counted')
  })
}

t.test('the docs_url of an error that was met opens', async (t) => {
  const { error } = (await instance.ask('GET', '/v1/keys')).body
  const { origin, pathname } = new URL(error.docs_url)
  t.equal(origin, 'http://latchkey.test', 'under BASE_URL')
  t.equal((await instance.ask('GET', pathname)).status, 200)
})

t.test('docs_url follows BASE_URL, with a path too', async (t) => {
  const services = await useServices(t)
  const elsewhere = await startInstance(t, services, { BASE_URL: 'https://keys.example/base' })
  const { error } = (await elsewhere.ask('GET', '/v1/keys')).body
  t.equal(error.docs_url, 'https://keys.example/base/docs/errors/unauthorized')
})

t.test('the paths that browsers and tools ask by themselves need no key, and write nothing', async (t) => {
  const services = await useServices(t)
  const own = await startInstance(t, services)
  const caller = await makeCaller(own)
  const sql = openDatabase(t, services.databaseUrl)
  const expected: [path: string, status: number][] = [
    ['/', 302],
    ['/docs', 200],
    ['/docs/errors', 200],
    ['/favicon.ico', 204],
    ['/openapi.json', 404],
    ['/docs/nope', 404],
  ]
  for (const method of ['GET', 'HEAD'])
    for (const [path, status] of expected) {
      const keyless = await own.ask(method, path)
      t.equal(keyless.status, status, `${method} ${path}`)
      t.match(keyless.headers.get('x-request-id'), /^req_/)
      t.equal(keyless.headers.get('x-content-type-options'), 'nosniff')
      for (const token of [caller.token, `lk_${'0'.repeat(38)}`]) {
        const answer = await own.ask(method, path, { token })
        t.equal(answer.status, status, 'and with a key, good or bad')
        t.notOk(isRated(answer), 'nobody is counted')
        t.equal(answer.text.replace(/req_\w+/, ''), keyless.text.replace(/req_\w+/, ''))
      }
    }
  t.strictSame([...(await sql`select * from audit_log where event = 'auth.refused'`)], [])
  const [key] = await sql`select last_used_at from api_keys where id = ${caller.id}`
  t.equal(key!.last_used_at, null)
})

t.test(
  'the root leads to the docs, an icon may be remembered, and there is no OpenAPI document',
  async (t) => {
    const root = await instance.ask('GET', '/')
    t.equal(root.headers.get('location'), '/docs')
    t.equal(root.text, '')
    const icon = await instance.ask('GET', '/favicon.ico')
    t.match(icon.headers.get('cache-control'), /^public, max-age=\d{4,}$/)
    expectError(t, await instance.ask('GET', '/openapi.json'), 'route_not_found')
  },
)

t.test('the index leads to the page of every error, also below a path of BASE_URL', async (t) => {
  const services = await useServices(t)
  const below = await startInstance(t, services, { BASE_URL: 'https://keys.example/base' })
  t.equal((await below.ask('GET', '/')).headers.get('location'), '/base/docs')
  for (const [one, base] of [
    [instance, ''],
    [below, '/base'],
  ] as const) {
    const { status, text, headers } = await one.ask('GET', '/docs')
    t.equal(status, 200)
    t.match(headers.get('content-type'), /^text\/html; *charset=utf-8/i)
    for (const [code, [status]] of Object.entries(errors)) {
      t.match(text, `href="${base}/docs/errors/${code}"`)
      t.match(text, String(status))
    }
    t.equal((await one.ask('GET', '/docs/errors')).text, text)
    t.match((await one.ask('GET', '/docs/errors/not_found')).text, `href="${base}/docs"`)
  }
})

const unknown = [
  'nope',
  'Unauthorized',
  '__proto__',
  'constructor',
  'toString',
  '%3Cscript%3E',
  '%zz',
  '%00',
  '',
]
for (const code of [...unknown, 'a'.repeat(5000), 'unauthorized/more']) {
  t.test(`the page of ${JSON.stringify(code.slice(0, 30))} is 404 without a key`, async (t) => {
    const answer = await instance.ask('GET', `/docs/errors/${code}`)
    t.equal(answer.status, 404)
    const { error } = answer.body
    expectError(t, answer, error.code === 'not_found' ? 'not_found' : 'route_not_found', null)
    t.notMatch(answer.text, '<script>')
  })
}

// The dashboard's login: what a session is, what it opens, and what it is refused.
import { once } from 'node:events'
import { request } from 'node:http'
import t, { type Test } from 'tap'
import { expectError } from '../api/expect-error.ts'
import { sendBytes } from '../api/raw-http.ts'
import { type Instance, startInstance, startOps } from '../instance.ts'
import { ada, bob, startAdmin } from './admin.ts'

const { services, instance, sql, entriesOf } = await startAdmin(t)

const startMs = Date.parse('2026-01-01T12:00:00Z')

/** An ops listener with a clock and a budget of its own, and a browser that has its page open. */
async function browser(t: Test, from: Instance = instance) {
  const clock = { ms: startMs }
  const ops = await startOps(t, from, { now: () => clock.ms })
  const ask = (method: string, path: string, headers: Record<string, string> = {}, json?: unknown) =>
    ops.ask(method, path, {
      headers: { 'user-agent': 'a browser', origin: ops.url, 'sec-fetch-site': 'same-origin', ...headers },
      ...(json !== undefined && { json }),
    })
  const logIn = (token: string, headers = {}) => ask('POST', '/login', headers, { token })
  const sessionOf = async (token: string) => {
    const [cookie = ''] = (await logIn(token)).headers.get('set-cookie')!.split(';')
    return { cookie }
  }
  return { ...ops, clock, ask, logIn, sessionOf }
}

const attributes = 'Path=/; HttpOnly; SameSite=Strict'

t.test('a token begins a session, which opens the admin API under the name of its operator', async (t) => {
  const { ask, logIn, sessionOf, url } = await browser(t)
  const login = await logIn(bob)
  t.equal(login.status, 204)
  const [value, ...flags] = login.headers.get('set-cookie')!.split('; ')
  t.match(value, /^latchkey_session=bob\.\d{10}\.[\w-]{43}$/)
  t.strictSame(flags.sort(), ['Max-Age=43200', ...attributes.split('; ')].sort())
  const overHttps = await logIn(ada, { origin: url.replace('http:', 'https:') })
  t.match(overHttps.headers.get('set-cookie'), /; Secure(;|$)/)
  expectError(t, await logIn('x'.repeat(4096)), 'operator_unauthorized', 'token')
  const session = await sessionOf(bob)
  const created = await ask('POST', '/admin/users', session, { name: 'x' })
  t.equal(created.status, 201)
  t.match([...(await entriesOf(created))], [{ event: 'user.created', actor: 'operator:bob' }])
})

t.test('the page is the login until there is a session, and no other site can frame it', async (t) => {
  const { ask, sessionOf } = await browser(t)
  const titleOf = (page: { text: string }) => /<title>(.*)<\/title>/.exec(page.text)?.[1]
  const session = await sessionOf(ada)
  const link = { 'sec-fetch-site': 'cross-site' }
  for (const [headers, title] of [
    [{}, 'Log in · Latchkey'],
    [{ cookie: 'latchkey_session=nonsense' }, 'Log in · Latchkey'],
    [session, 'Latchkey'],
    [link, 'Log in · Latchkey'],
  ] as const) {
    const page = await ask('GET', '/', headers)
    t.strictSame([page.status, titleOf(page)], [200, title])
    const policy = page.headers.get('content-security-policy')!
    t.notMatch(policy, 'unsafe')
    const directives = policy.split('; ')
    for (const name of ['default-src', 'base-uri', 'form-action', 'frame-ancestors', 'trusted-types'])
      t.ok(directives.includes(`${name} 'none'`), name)
    for (const name of ['script-src', 'style-src', 'img-src', 'connect-src'])
      t.ok(directives.includes(`${name} 'self'`), name)
    t.ok(directives.includes("require-trusted-types-for 'script'"))
    t.equal(page.headers.get('referrer-policy'), 'same-origin')
    t.equal(page.headers.get('cross-origin-opener-policy'), 'same-origin')
    for (const [, file] of page.text.matchAll(/(?:src|href)="([^"]+)"/g)) {
      const answer = await ask('GET', file!)
      t.equal(answer.status, 200, file!)
      t.equal(answer.headers.get('x-content-type-options'), 'nosniff')
    }
  }
  const left = await ask('POST', '/logout', session)
  t.equal(left.status, 204)
  const forget = left.headers.get('set-cookie')
  t.match(forget, /^latchkey_session=; Max-Age=0; /)
  t.notMatch(forget, 'Secure', 'which a browser would ignore over http')
})

t.test('wrong tokens are recorded and share the budget of refusals', async (t) => {
  const { ask, logIn, sessionOf } = await browser(t)
  const session = await sessionOf(ada)
  const wrong = await logIn('a-guess-at-a-token')
  expectError(t, wrong, 'operator_unauthorized', 'token')
  t.match(wrong.body.error.suggestion, 'OPS_TOKEN, without its name')
  t.equal(wrong.headers.get('set-cookie'), null)
  const [entry] = await entriesOf(wrong)
  t.match(entry, {
    event: 'operator.refused',
    reason: 'wrong_token',
    path: '/login',
    user_agent: 'a browser',
  })
  for (let n = 0; n < 29; n++) await logIn('a-guess-at-a-token')
  for (let n = 0; n < 30; n++) await ask('GET', '/admin/users', { authorization: 'Bearer guess' })
  for (const answer of [
    await logIn(ada),
    // Not even its body is read.
    await ask('POST', '/login', {}, {}),
    await ask('GET', '/admin/users', session),
  ])
    expectError(t, answer, 'rate_limit_exceeded')
  t.equal((await ask('GET', '/', session)).status, 200, 'the page is still there to say so')
})

t.test('guesses begun before the budget was spent have none left', async (t) => {
  const { port, logIn, url } = await browser(t)
  const before = (await sql`select from audit_log where event = 'operator.refused'`).length
  /** Sends all but the body, and returns what sends that and gets the status. */
  const begin = async (token: string) => {
    const body = JSON.stringify({ token })
    const headers = { 'content-type': 'application/json', 'content-length': body.length, origin: url }
    const to = { host: '127.0.0.1', port, method: 'POST', path: '/login' }
    const guess = request({ ...to, headers: { ...headers, expect: '100-continue' } })
    guess.flushHeaders()
    await once(guess, 'continue')
    return async () => {
      guess.end(body)
      const [response] = await once(guess, 'response')
      response.resume()
      return response.statusCode
    }
  }
  const right = await begin(ada)
  const begun = await Promise.all(Array.from({ length: 70 }, () => begin('a-guess-at-a-token')))
  const statuses = await Promise.all(begun.map((finish) => finish()))
  t.equal(statuses.filter((status) => status === 401).length, 60)
  t.equal(statuses.filter((status) => status === 429).length, 10)
  t.equal(await right(), 429, 'the right one shows nothing any more')
  t.equal((await sql`select from audit_log where event = 'operator.refused'`).length, before + 60)
  t.equal((await logIn(ada)).status, 429)
})

t.test('a session ends after 12 hours, and one that we did not make is none', async (t) => {
  const { ask, sessionOf, clock } = await browser(t)
  const { cookie } = await sessionOf(ada)
  const status = async (value: string) => (await ask('GET', '/admin/users', { cookie: value })).status
  const endS = String(startMs / 1000 + 12 * 3600)
  t.match(cookie, endS)
  for (const forged of [
    cookie.replace('=ada.', '=bob.'),
    cookie.replace(endS, String(Number(endS) + 1)),
    cookie.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A')),
    cookie.replace(/\.[^.]*$/, `.${'A'.repeat(43)}`),
    cookie.replace(/\.[^.]*$/, ''),
    `latchkey_session=${ada}`,
    `latchkey_session=__proto__.${endS}.${'A'.repeat(43)}`,
  ])
    t.equal(await status(forged), 401, forged)
  clock.ms += 12 * 3_600_000 - 1
  t.equal(await status(`other=1; ${cookie}`), 200)
  clock.ms += 1
  t.equal(await status(cookie), 401)
})

t.test('a session holds on every instance, until its token is removed or replaced', async (t) => {
  const { cookie } = await (await browser(t)).sessionOf(ada)
  for (const [tokens, status] of [
    [`bob:${bob},ada:${ada}`, 200],
    [`ada:another-${ada},bob:${bob}`, 401],
    [`bob:${bob}`, 401],
  ] as const) {
    const other = await browser(t, await startInstance(t, services, { OPS_TOKEN: tokens }))
    t.equal((await other.ask('GET', '/admin/users', { cookie })).status, status, tokens)
  }
})

t.test('with a session, a request that changes something must come from our own page', async (t) => {
  const { ask, port, sessionOf, url, logIn } = await browser(t)
  const session = await sessionOf(ada)
  const count = async () => (await sql`select from users`).length
  const before = await count()
  const foreign = [
    { origin: 'http://evil.example' },
    { origin: url.replace(/\d+$/, '1') },
    { origin: 'null' },
    { 'sec-fetch-site': 'same-site' },
  ]
  for (const headers of foreign) {
    const forged = await ask('POST', '/admin/users', { ...session, ...headers }, { name: 'x' })
    expectError(t, forged, 'operator_unauthorized')
    t.match([...(await entriesOf(forged))], [{ reason: 'foreign_origin' }])
    const refused = await logIn(ada, headers)
    expectError(t, refused, 'operator_unauthorized', 'token')
    t.match(refused.body.error.suggestion, /A proxy in front must pass on the Host header/)
  }
  const withoutOrigin = async (method: string, body = '') => {
    const head = `${method} /admin/users HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\nCookie: ${session.cookie}`
    const about = `Content-Type: application/json\r\nContent-Length: ${body.length}`
    return (await sendBytes(port, `${head}\r\n${about}\r\n\r\n${body}`)).status
  }
  t.equal(await withoutOrigin('POST', '{"name":"x"}'), 401, 'without Origin')
  t.equal(await withoutOrigin('GET'), 200, 'browsers send no Origin with a GET of our own page')
  // `fetch` would send a mode of its own.
  const followed = async (method: string, destination = 'document') => {
    const head = `${method} /admin/users HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nOrigin: ${url}\r\nConnection: close`
    const link = 'Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nContent-Length: 0'
    const cookie = `Cookie: ${session.cookie}\r\nSec-Fetch-Dest: ${destination}`
    return (await sendBytes(port, `${head}\r\n${cookie}\r\n${link}\r\n\r\n`)).status
  }
  t.strictSame(
    [await followed('GET'), await followed('POST'), await followed('GET', 'iframe')],
    [200, 401, 401],
    'a link leads here, a form or a frame does not',
  )
  const read = { ...session, 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'no-cors' }
  t.equal((await ask('GET', '/admin/users', read)).status, 401, 'another page cannot make us read either')
  t.equal(await count(), before)
})

t.test('a wrong token is refused, also beside a session', async (t) => {
  const { ask, sessionOf } = await browser(t)
  const authorization = 'Bearer a-token-of-nobody'
  t.equal((await ask('GET', '/admin/users', { ...(await sessionOf(ada)), authorization })).status, 401)
})

t.test('without tokens there is no login, and a rebound host name does not get the page', async (t) => {
  const { ask, port } = await browser(t, await startInstance(t, services))
  t.match((await ask('GET', '/')).text, '<title>Latchkey</title>')
  expectError(t, await ask('POST', '/login', {}, { token: ada }), 'route_not_found')
  for (const path of ['/', '/admin/users']) {
    const request = `GET ${path} HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n`
    t.equal((await sendBytes(port, request)).status, 401, path)
  }
})

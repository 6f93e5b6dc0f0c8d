// What the client repeats, when, and what it never repeats. The responses are made here, and the clock is set.
import { getEventListeners } from 'node:events'
import { inspect } from 'node:util'
import FakeTimers from '@sinonjs/fake-timers'
import t from 'tap'
import {
  type ClientOptions,
  createAdminClient,
  createClient,
  type LatchkeyError,
} from '../../src/client/index.ts'
import { elsewhereMs } from '../../src/rules/clock-rates.ts'
import { poolBounds } from '../../src/wiring/pools.ts'

type Reply = { status: number; retryAfter?: string; requestId?: string; body?: string } | Error
const key = { id: 'apk_1', name: 'a' }
const ok: Reply = { status: 200, body: JSON.stringify(key) }
const limited = (retryAfter: string): Reply => ({ ...envelope(429, 'rate_limit_exceeded'), retryAfter })
const unavailable: Reply = { ...envelope(503, 'service_unavailable'), retryAfter: '1' }

function envelope(status: number, code: string) {
  const error = {
    type: 'x',
    code,
    message: 'No.',
    param: '',
    docs_url: 'x:',
    request_id: 'req_1',
    suggestion: 'Wait.',
  }
  return { status, body: JSON.stringify({ error }) }
}

/** A client whose attempts get these replies, one after the other. */
function clientThatGets(replies: Reply[], options: Partial<ClientOptions> = {}) {
  const clock = FakeTimers.install({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
  const sentAtMs: number[] = []
  const fetch = async () => {
    sentAtMs.push(clock.now)
    const reply = replies[sentAtMs.length - 1]!
    if (reply instanceof Error) throw reply
    const headers = new Headers()
    if (reply.retryAfter !== undefined) headers.set('retry-after', reply.retryAfter)
    if (reply.requestId !== undefined) headers.set('x-request-id', reply.requestId)
    return new Response(reply.body ?? null, { status: reply.status, headers })
  }
  const client = createClient({ baseUrl: 'http://latchkey.test', key: 'lk_1', fetch, ...options })
  /** Runs the call to its end, however long it waits. */
  const outcome = async <T>(call: Promise<T>): Promise<T | LatchkeyError> => {
    const settled = call.catch((error: LatchkeyError) => error)
    let isSettled = false
    void settled.then(() => {
      isSettled = true
    })
    while (!isSettled) await clock.runAllAsync()
    return settled
  }
  return { client, clock, sentAtMs, outcome }
}

t.test('a 429 is repeated after Retry-After and at most a second more, whatever the method', async (t) => {
  const { client, clock, sentAtMs, outcome } = clientThatGets([limited('30'), limited('7'), ok])
  t.same(await outcome(client.keys.create({ name: 'a' })), key)
  clock.uninstall()
  const [first, second, third] = sentAtMs as [number, number, number]
  t.ok(second - first >= 30_000 && second - first <= 31_000, `${second - first} ms`)
  t.ok(third - second >= 7000 && third - second <= 8000, `${third - second} ms`)
})

t.test('a Retry-After of a whole minute is waited for', async (t) => {
  const { client, clock, sentAtMs, outcome } = clientThatGets([limited('60'), ok])
  t.same(await outcome(client.keys.get('apk_1')), key)
  clock.uninstall()
  t.ok(sentAtMs[1]! - sentAtMs[0]! >= 60_000)
})

t.test('without a Retry-After, the least wait doubles each time', async (t) => {
  const { client, clock, sentAtMs, outcome } = clientThatGets([...Array(3).fill(new TypeError('x')), ok], {
    retries: 3,
  })
  t.same(await outcome(client.keys.get('apk_1')), key)
  clock.uninstall()
  for (const [i, leastMs] of [200, 400, 800].entries()) {
    const waitedMs = sentAtMs[i + 1]! - sentAtMs[i]!
    t.ok(waitedMs >= leastMs && waitedMs <= 2 * leastMs, `${waitedMs} ms`)
  }
})

t.test('a Retry-After of a proxy may be a date', async (t) => {
  // By the clock of the test, which begins at 0.
  const retryAfter = new Date(20_000).toUTCString()
  const { client, clock, sentAtMs, outcome } = clientThatGets([{ status: 503, retryAfter }, ok])
  t.same(await outcome(client.keys.get('apk_1')), key)
  clock.uninstall()
  const waitedMs = sentAtMs[1]! - sentAtMs[0]!
  t.ok(waitedMs >= 20_000 && waitedMs <= 21_000, `${waitedMs} ms`)

  for (const [nowMs, retryAfterS] of [
    [19_001, 1],
    [25_000, 0],
  ] as const) {
    const { client, clock, outcome } = clientThatGets([{ status: 503, retryAfter }], { retries: 0 })
    clock.setSystemTime(nowMs)
    t.match(await outcome(client.verify()), { retryAfterS }, 'never too early, and never negative')
    clock.uninstall()
  }
})

t.test('clients that wait for the same moment do not come back together', async (t) => {
  const waits = new Set<number>()
  for (let i = 0; i < 5; i++) {
    const { client, clock, sentAtMs, outcome } = clientThatGets([limited('1'), ok])
    await outcome(client.verify())
    clock.uninstall()
    waits.add(sentAtMs[1]! - sentAtMs[0]!)
  }
  t.ok(waits.size > 1)
})

t.test('what cannot be sent is no fault of the network', async (t) => {
  const { client, clock, sentAtMs, outcome } = clientThatGets([ok])
  t.match(await outcome(client.keys.update('apk_1', { rate_limit_rpm: 5n as never })), { name: 'TypeError' })
  clock.uninstall()
  t.same(sentAtMs, [])
})

t.test(
  'a change that may have been made gets the earlier error, not a refusal of its repetition',
  async (t) => {
    const unauthorized = envelope(401, 'unauthorized')
    const past = envelope(400, 'invalid_parameter')
    for (const [name, replies, code] of [
      ['revoke', [unavailable, unauthorized], 'service_unavailable'],
      ['revoke', [new TypeError('fetch failed'), unavailable, unauthorized], 'service_unavailable'],
      ['revoke', [limited('1'), unauthorized], 'unauthorized'],
      ['revoke', [unauthorized], 'unauthorized'],
      ['update', [unavailable, unauthorized], 'service_unavailable'],
      ['update', [unavailable, past], 'service_unavailable'],
      ['update', [unavailable, limited('1'), past], 'service_unavailable'],
      ['update', [unavailable, limited('61')], 'service_unavailable'],
      ['update', [past], 'invalid_parameter'],
      ['get', [unavailable, unauthorized], 'unauthorized'],
    ] as const) {
      const { client, clock, outcome } = clientThatGets([...replies])
      t.match(await outcome(client.keys[name]('apk_1', {})), { code })
      clock.uninstall()
    }
  },
)

t.test('what may have been done is not done again', async (t) => {
  const fromProxy = (status: number) => ({ status, body: '<html>' })
  for (const reply of [unavailable, new TypeError('fetch failed'), fromProxy(502), fromProxy(504)]) {
    for (const [name, count] of [
      ['create', 1],
      ['rotate', 1],
      ['update', 2],
      ['revoke', 2],
      ['get', 2],
    ] as const) {
      const { client, clock, sentAtMs, outcome } = clientThatGets([reply, ok])
      const { keys } = client
      await outcome(name === 'create' ? keys.create({ name: 'a' }) : keys[name]('apk_1', {}))
      clock.uninstall()
      t.equal(
        sentAtMs.length,
        count,
        `${name} after ${reply instanceof Error ? reply.message : reply.status}`,
      )
    }
  }
})

t.test(
  'it gives up: after its attempts, at a longer wait than allowed, and where nothing would change',
  async (t) => {
    for (const [replies, options, sent, expected] of [
      [[unavailable, unavailable, unavailable, ok], {}, 3, { status: 503, retryAfterS: 1 }],
      [[unavailable, ok], { retries: 0 }, 1, { status: 503 }],
      [[limited('61'), ok], {}, 1, { status: 429, retryAfterS: 61 }],
      [[limited('9'.repeat(400)), ok], {}, 1, { status: 429, retryAfterS: Infinity }],
      [[limited('soon'), limited('-1'), ok], { retries: 1 }, 2, { status: 429, retryAfterS: null }],
      [[{ status: 301, body: '{}' }, ok], {}, 1, { status: 301, code: 'unexpected_response' }],
      [[envelope(301, 'moved'), ok], {}, 1, { status: 301, code: 'unexpected_response' }],
      [
        [{ status: 403, body: '<html>', requestId: 'proxy-1' }, ok],
        {},
        1,
        { status: 403, code: 'unexpected_response', requestId: 'proxy-1' },
      ],
      ...['{"error":{"code":"PROXY_SAYS_NO","message":"x"}}', '{"key_id":"apk_1"}'].map(
        (body) => [[{ status: 404, body }, ok], {}, 1, { status: 404, code: 'unexpected_response' }] as const,
      ),
      [[limited('5'), ok], { retryAfterMaxS: 4 }, 1, { status: 429, retryAfterS: 5 }],
      [
        [envelope(404, 'not_found'), ok],
        {},
        1,
        { status: 404, code: 'not_found', requestId: 'req_1', suggestion: 'Wait.' },
      ],
      ...[500, 501, 505].map(
        (status) => [[envelope(status, 'internal_error'), ok], {}, 1, { status }] as const,
      ),
      ...[200, 201, 500].map((status) => [
        [{ status, body: '{"id":"apk_1","plain_' }, ok],
        {},
        1,
        { status, code: 'unexpected_response', suggestion: /^Check `baseUrl`.*\. If this was a change,/ },
      ]),
      [
        [{ status: 302, body: '<html>' }, ok],
        {},
        1,
        { status: 302, suggestion: /^Check `baseUrl`, and the proxies in between[.]$/ },
      ],
      [[{ status: 200, body: '{}' }, ok], {}, 1, { status: 200, code: 'unexpected_response' }],
      [
        [new TypeError('x'), new TypeError('x'), new TypeError('y'), ok],
        {},
        3,
        { status: 0, code: 'no_response', cause: { message: 'y' } },
      ],
    ] as [Reply[], Partial<ClientOptions>, number, object][]) {
      const { client, clock, sentAtMs, outcome } = clientThatGets(replies, options)
      t.match(await outcome(client.verify()), { name: 'LatchkeyError', ...expected })
      clock.uninstall()
      t.equal(sentAtMs.length, sent)
    }
  },
)

t.test('the caller can end a wait, and an attempt has a time limit', async (t) => {
  const { client, clock } = clientThatGets([limited('30'), limited('30'), ok])
  const controller = new AbortController()
  const calls = [1, 2].map(() => client.verify({ signal: controller.signal }))
  for (const call of calls) call.catch(() => {})
  while (clock.countTimers() < 2) await clock.tickAsync(1)
  t.equal(getEventListeners(controller.signal, 'abort').length, 1, 'any number of calls may share it')
  controller.abort(new Error('enough'))
  for (const call of calls) await t.rejects(call, { message: 'enough' })
  t.equal(clock.countTimers(), 0, 'nothing is left waiting')
  clock.uninstall()

  const ended = new AbortController()
  const endsWhileSent = async () => {
    ended.abort(new Error('enough'))
    return new Response(null, { status: 429, headers: { 'retry-after': '30' } })
  }
  const given = createClient({ baseUrl: 'http://latchkey.test', key: 'lk_1', fetch: endsWhileSent })
  await t.rejects(given.verify({ signal: ended.signal }), { message: 'enough' }, 'before the wait begins')

  const hanging = (_url: string, { signal }: RequestInit) =>
    new Promise<Response>((_, reject) => signal!.addEventListener('abort', () => reject(signal!.reason)))
  const options = { baseUrl: 'http://latchkey.test', key: 'lk_1', fetch: hanging, timeoutMs: 5, retries: 0 }
  // A timer of AbortSignal alone does not keep a process alive.
  const alive = setInterval(() => {}, 1000)
  for (const call of [{}, { signal: new AbortController().signal }])
    await t.rejects(createClient(options).verify(call), { code: 'timeout', status: 0 })
  const ending = new AbortController()
  const patient = createClient({ ...options, timeoutMs: 60_000 }).verify({ signal: ending.signal })
  const prompt = createClient({ ...options, fetch: async () => Response.json({ key_id: 'apk_1' }) })
  await prompt.verify({ signal: ending.signal })
  ending.abort(new Error('enough'))
  await t.rejects(patient, { message: 'enough' }, 'also during an attempt, and after another call has ended')
  let attempts = 0
  const slowOnce = (url: string, init: RequestInit) =>
    attempts++ === 0 ? hanging(url, init) : Promise.resolve(Response.json({ ...key, key_id: 'apk_1' }))
  await createClient({ ...options, fetch: slowOnce, retries: 1 }).verify()
  t.equal(attempts, 2, 'a read that timed out is repeated')
  clearInterval(alive)
})

t.test('a change has more time than the slowest one takes, and a read 10 s', async (t) => {
  const timeouts = t.capture(AbortSignal, 'timeout', AbortSignal.timeout)
  const fetch = async () => Response.json({ ...key, revoked: 1 })
  const options = { baseUrl: 'http://latchkey.test', fetch }
  const admin = createAdminClient({ ...options, token: 'operator' })
  const { keys } = createClient({ ...options, key: 'lk_1' })
  const changes = [
    () => keys.create({ name: 'a' }),
    () => keys.update('apk_1', { name: 'b' }),
    () => keys.rotate('apk_1'),
    () => keys.revoke('apk_1'),
    () => admin.users.revokeKeys('usr_1'),
    () => admin.users.delete('usr_1'),
  ]
  for (const change of changes) await change()
  // 60 s is the largest KEY_CACHE_SECONDS. A fence has 4 s more, and its last query another second.
  const publishMs = elsewhereMs(60_000) + 250 + 4000 + poolBounds.instances.timeoutMs
  const slowestMs = poolBounds.management.timeoutMs + poolBounds.operator.timeoutMs + publishMs
  const given = timeouts().map(({ args: [ms] }) => ms)
  t.equal(given.length, changes.length)
  for (const ms of given) t.ok(ms > slowestMs, `${ms} ms`)
  await keys.get('apk_1')
  await createClient({ ...options, key: 'lk_1', timeoutMs: 1000 }).keys.rotate('apk_1')
  t.strictSame(
    timeouts().map(({ args: [ms] }) => ms),
    [10_000, 1000],
  )
})

t.test('a key that cannot be in a header is refused without being shown', async (t) => {
  for (const key of ['lk_secret\n', '', 'lk_secr et', 'lk_sécret', undefined, null]) {
    const make = () => createClient({ baseUrl: 'http://latchkey.test', key: key as string })
    t.throws(make, { name: 'TypeError', message: /^The key or token must be visible ASCII/ })
  }
})

t.test('a base URL to which no path can be appended is refused', async (t) => {
  for (const baseUrl of [
    ...['latchkey', 'ftp://latchkey.test', 'latchkey.test:3000', 'http://latchkey.test/?a=b'],
    ...['http://latchkey.test/#a', 'http://ada@latchkey.test', 'http://:secret@latchkey.test'],
    ...['http://:secret@latchkey.test:99999', '/latchkey', undefined as never],
  ]) {
    const error = t.throws(() => createClient({ baseUrl, key: 'lk_1' }), { message: /^`baseUrl` must/ })
    t.notMatch(inspect(error), 'secret')
  }
})

t.test('a time limit that timers do not take is refused', async (t) => {
  const options = { baseUrl: 'http://latchkey.test', key: 'lk_1' }
  for (const timeoutMs of [0, -1, NaN, Infinity, 2 ** 31, null as never])
    t.throws(() => createClient({ ...options, timeoutMs }), { message: /^`timeoutMs` must be above 0/ })
  createClient({ ...options, timeoutMs: 2 ** 31 - 1 })
})

t.test('a time limit with a fraction is rounded up', async () => {
  const fetch = async () => Response.json({ key_id: 'apk_1' })
  const options = { baseUrl: 'http://latchkey.test', key: 'lk_1', fetch, retries: 0 }
  for (const timeoutMs of [0.5, 1000.5]) await createClient({ ...options, timeoutMs }).verify()
})

t.test('a list that is not the service’s is an error, not the same page for ever', async (t) => {
  for (const body of [
    {},
    { next_cursor: null },
    { data: [] },
    { data: {}, next_cursor: null },
    { data: [], next_cursor: 1 },
  ]) {
    const { client, clock, sentAtMs, outcome } = clientThatGets([{ status: 200, body: JSON.stringify(body) }])
    t.match(await outcome(client.keys.list().next()), { code: 'unexpected_response' })
    clock.uninstall()
    t.equal(sentAtMs.length, 1)
  }
})

t.test('an id that no URL can hold is rejected like any other', async (t) => {
  const { client, clock, sentAtMs } = clientThatGets([ok])
  clock.uninstall()
  await t.rejects(client.keys.get('\ud800'), URIError)
  t.equal(sentAtMs.length, 0)
})

t.test('a signal shared by many calls keeps nothing of finished ones', async (t) => {
  const { client, clock, outcome } = clientThatGets([limited('1'), limited('1'), ok])
  const { signal } = new AbortController()
  t.same(await outcome(client.keys.get('apk_1', { signal })), key)
  clock.uninstall()
  t.strictSame(getEventListeners(signal, 'abort'), [])
  // Node's lists of the signals that depend on this one.
  const lists = Object.getOwnPropertySymbols(signal).map((name) => Reflect.get(signal, name))
  for (const list of lists) t.notOk(list?.size)
})

t.test('a success that is not the service’s is an error', async (t) => {
  const { client, clock, outcome } = clientThatGets([{ status: 200, body: '{"name":"a"}' }])
  t.match(await outcome(client.keys.get('apk_1')), { status: 200, code: 'unexpected_response' })
  clock.uninstall()
})

t.test('a request says what it wants, also where that is 0', async (t) => {
  const fetch = async (url: string, { method, headers, body }: RequestInit) => {
    t.strictSame(
      [method, url, headers, body],
      [
        'GET',
        'http://latchkey.test/v1/keys/apk_1/usage?since=0',
        { accept: 'application/json', authorization: 'Bearer lk_1' },
        undefined,
      ],
    )
    return Response.json({ step: 'minute' })
  }
  const { keys } = createClient({ baseUrl: 'http://latchkey.test', key: 'lk_1', fetch })
  await keys.usage('apk_1', { since: 0 })
})

t.test('an id is one segment below the path of the base URL, whatever is in it', async (t) => {
  const paths: string[] = []
  const fetch = async (url: string) => {
    paths.push(new URL(url).pathname)
    return Response.json(key)
  }
  const options = { baseUrl: 'http://latchkey.test/base/?#', fetch }
  const admin = createAdminClient({ ...options, token: 'operator' })
  await admin.users.delete('../keys/apk_1')
  await admin.keys.rotate('apk_1?a#b')
  await createClient({ ...options, key: 'lk_1' }).keys.get('apk_1/usage')
  for (const id of ['', '.', '..'])
    await t.rejects(admin.users.delete(id), { name: 'TypeError', message: /^An id must not/ })
  t.strictSame(paths, [
    '/base/admin/users/..%2Fkeys%2Fapk_1',
    '/base/admin/keys/apk_1%3Fa%23b/rotate',
    '/base/v1/keys/apk_1%2Fusage',
  ])
})

t.test('every operation sends what it is given, and ends with its signal', async (t) => {
  const sent: string[] = []
  const fetch = async (url: string, { body, signal }: RequestInit) => {
    sent.push(`${url.replace('http://latchkey.test', '')} ${body ?? ''}`)
    signal!.throwIfAborted()
    return Response.json({})
  }
  const end = { signal: AbortSignal.abort(new Error('enough')) }
  const { keys, verify } = createClient({ baseUrl: 'http://latchkey.test', key: 'lk_1', fetch })
  const admin = createAdminClient({ baseUrl: 'http://latchkey.test', token: 'operator', fetch })
  for (const [call, wanted] of [
    [() => keys.create({ name: 'a' }, end), '/v1/keys {"name":"a"}'],
    [() => keys.list({ limit: 1 }, end).next(), '/v1/keys?limit=1 '],
    [() => keys.get('apk_1', end), '/v1/keys/apk_1 '],
    [() => keys.update('apk_1', { name: 'a' }, end), '/v1/keys/apk_1 {"name":"a"}'],
    [() => keys.revoke('apk_1', end), '/v1/keys/apk_1 '],
    [() => keys.rotate('apk_1', { expires_in: 9 }, end), '/v1/keys/apk_1/rotate {"expires_in":9}'],
    [() => keys.usage('apk_1', { step: 'day' }, end), '/v1/keys/apk_1/usage?step=day '],
    [() => verify(end), '/v1/verify '],
    [() => admin.users.create({ name: 'a' }, end), '/admin/users {"name":"a"}'],
    [() => admin.users.list({ limit: 1 }, end).next(), '/admin/users?limit=1 '],
    [() => admin.users.get('usr_1', end), '/admin/users/usr_1 '],
    [() => admin.users.update('usr_1', { name: 'a' }, end), '/admin/users/usr_1 {"name":"a"}'],
    [() => admin.users.delete('usr_1', end), '/admin/users/usr_1 '],
    [() => admin.users.revokeKeys('usr_1', end), '/admin/users/usr_1/revoke-keys '],
    [
      () => admin.keys.create({ user_id: 'usr_1', name: 'a' }, end),
      '/admin/keys {"user_id":"usr_1","name":"a"}',
    ],
    [() => admin.keys.list({ limit: 1 }, end).next(), '/admin/keys?limit=1 '],
    [() => admin.keys.get('apk_1', end), '/admin/keys/apk_1 '],
    [() => admin.keys.update('apk_1', { name: 'a' }, end), '/admin/keys/apk_1 {"name":"a"}'],
    [() => admin.keys.revoke('apk_1', end), '/admin/keys/apk_1 '],
    [() => admin.keys.rotate('apk_1', { expires_in: 9 }, end), '/admin/keys/apk_1/rotate {"expires_in":9}'],
    [() => admin.keys.usage('apk_1', { step: 'day' }, end), '/admin/keys/apk_1/usage?step=day '],
    [() => admin.keys.scan({ text: 'a' }, end), '/admin/keys/scan {"text":"a"}'],
    [() => admin.counters({ minute: 'last' }, end), '/admin/counters?minute=last '],
    [() => admin.instances(end), '/admin/instances '],
    [() => admin.lookup('a', end), '/admin/lookup {"query":"a"}'],
    [() => admin.audit({ limit: 1 }, end).next(), '/admin/audit?limit=1 '],
  ] as [() => Promise<unknown>, string][]) {
    await t.rejects(call(), { message: 'enough' }, wanted)
    t.strictSame(sent.splice(0), [wanted])
  }
})

// GET /v1/keys: the user's keys, revoked ones included, newest first, one page at a time.
import t from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const instance = await startInstance(t, await useServices(t))
const nowS = () => Math.floor(Date.now() / 1000)

const list = (token: string, query = '') => instance.ask('GET', `/v1/keys${query}`, { token })
const idsOf = (body: { data: { id: string }[] }) => body.data.map(({ id }) => id)

t.test('the list of a user with one key is that key, and says that there is no more', async (t) => {
  const { id, token, name } = await makeCaller(instance)
  const answer = await list(token)
  t.equal(answer.status, 200)
  expectRated(t, answer)
  t.same(Object.keys(answer.body).sort(), ['data', 'has_more', 'next_cursor', 'object'])
  t.match(answer.body, { object: 'list', has_more: false, next_cursor: null })
  t.match(answer.body.data, [{ id, name }])
  t.equal(answer.body.data.length, 1)
  expectKey(t, answer.body.data[0])
})

t.test('the list shows each key as GET shows it, revoked and expired ones too', async (t) => {
  const { id, token, userId } = await makeCaller(instance)
  const expired = await makeKey(instance, { userId, expiresAt: nowS() - 60 })
  const revoked = await makeKey(instance, { userId })
  await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token })
  const { body } = await list(token)
  t.same(idsOf(body), [revoked.id, expired.id, id], 'newest first')
  t.type(body.data[0].revoked_at, 'number')
  for (const shown of body.data.slice(0, 2)) {
    t.same(shown, (await instance.ask('GET', `/v1/keys/${shown.id}`, { token })).body)
  }
})

t.test('the list shows the use that the request itself is', async (t) => {
  const { token } = await makeCaller(instance)
  const beforeS = nowS()
  const { last_used_at } = (await list(token)).body.data[0]
  t.ok(last_used_at >= beforeS && last_used_at <= nowS())
})

t.test("nobody sees a stranger's keys in the list", async (t) => {
  const [one, two] = [await makeCaller(instance), await makeCaller(instance)]
  t.same(idsOf((await list(one.token)).body), [one.id])
  t.same(idsOf((await list(two.token)).body), [two.id])
})

t.test('a page has 100 keys where nothing else was asked for', async (t) => {
  const { token, userId } = await makeCaller(instance)
  for (let made = 1; made < 100; made++) await makeKey(instance, { userId })
  const full = (await list(token)).body
  t.equal(full.data.length, 100)
  t.match(full, { has_more: false, next_cursor: null }, 'exactly one page')

  await makeKey(instance, { userId })
  const first = (await list(token)).body
  t.equal(first.data.length, 100)
  t.match(first, { has_more: true, next_cursor: first.data.at(-1).id })
  const second = (await list(token, `?starting_after=${first.next_cursor}`)).body
  t.match(second, { has_more: false, next_cursor: null })
  t.same(idsOf(second), idsOf(full).slice(-1))
  t.equal((await list(token, '?limit=100')).body.data.length, 100)
})

t.test('after the oldest key comes an empty last page', async (t) => {
  const { id, token } = await makeCaller(instance)
  const { status, body } = await list(token, `?starting_after=${id}`)
  t.equal(status, 200)
  t.same(body, { object: 'list', data: [], has_more: false, next_cursor: null })
})

t.test('each status lists its keys, and the three together list all once', async (t) => {
  const { id, token, userId } = await makeCaller(instance)
  const make = async (expiresAt: number | null, revoked: boolean) => {
    const made = await makeKey(instance, { userId, expiresAt })
    if (revoked) await instance.ask('DELETE', `/v1/keys/${made.id}`, { token })
    return made.id
  }
  const active = [id, await make(null, false), await make(nowS() + 3600, false)]
  const expired = [await make(nowS() - 60, false), await make(1, false)]
  // Revoked comes before expired, as in the order of the reasons.
  const revoked = [await make(null, true), await make(nowS() + 3600, true), await make(nowS() - 60, true)]
  for (const [status, ids] of Object.entries({ active, expired, revoked })) {
    t.same(idsOf((await list(token, `?status=${status}`)).body), ids.toReversed(), status)
  }
})

t.test('pages of one status are as full as asked for, whatever lies between', async (t) => {
  const { token, userId } = await makeCaller(instance)
  const expired: string[] = []
  for (let made = 0; made < 12; made++) {
    const { id } = await makeKey(instance, { userId, expiresAt: made % 3 === 0 ? nowS() - 60 : null })
    if (made % 3 === 0) expired.unshift(id)
  }
  const first = (await list(token, '?status=expired&limit=2')).body
  t.same(idsOf(first), expired.slice(0, 2))
  t.match(first, { has_more: true, next_cursor: expired[1] })
  const second = (await list(token, `?status=expired&limit=2&starting_after=${first.next_cursor}`)).body
  t.same(idsOf(second), expired.slice(2))
  t.match(second, { has_more: false, next_cursor: null })
})

t.test('a cursor may be a key of another status', async (t) => {
  const { id, token, userId } = await makeCaller(instance)
  const revoked = await makeKey(instance, { userId })
  await makeKey(instance, { userId })
  await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token })
  const { status, body } = await list(token, `?status=active&starting_after=${revoked.id}`)
  t.equal(status, 200)
  t.same(idsOf(body), [id])
})

t.test("a cursor that is not one of the caller's keys is 404", async (t) => {
  const { token } = await makeCaller(instance)
  const stranger = await makeCaller(instance)
  for (const cursor of ['apk_0000000000000000000000000000', stranger.id, stranger.userId, '']) {
    expectError(t, await list(token, `?starting_after=${cursor}`), 'not_found', 'starting_after')
  }
})

const refused: [query: string, code: 'invalid_parameter' | 'unknown_parameter', param: string][] = [
  ...['0', '101', '-1', '1.5', '1e1', '0x10', 'ten', '', '%20', '99999999999999999999', '%zz'].map(
    (limit): [string, 'invalid_parameter', string] => [`?limit=${limit}`, 'invalid_parameter', 'limit'],
  ),
  ['?status=', 'invalid_parameter', 'status'],
  ['?status=ACTIVE', 'invalid_parameter', 'status'],
  ['?status=deleted', 'invalid_parameter', 'status'],
  ['?page=2', 'unknown_parameter', 'page'],
  ['?limit=2&offset=5', 'unknown_parameter', 'offset'],
]
for (const [query, code, param] of refused) {
  t.test(`the query ${query} is 400 and names ${param}`, async (t) => {
    const { token } = await makeCaller(instance)
    const answer = await list(token, query)
    expectError(t, answer, code, param)
    expectRated(t, answer)
  })
}

t.test('a parameter that is sent twice is named, and what is wrong with it', async (t) => {
  const { token } = await makeCaller(instance)
  const answer = await list(token, '?limit=10&limit=10')
  expectError(t, answer, 'invalid_parameter', 'limit')
  t.match(answer.body.error.message, /more than once/)
})

t.test('the list without a key is 401, whatever the query', async (t) => {
  for (const query of ['', '?limit=0', '?starting_after=apk_x']) {
    expectError(t, await instance.ask('GET', `/v1/keys${query}`), 'unauthorized')
  }
})

t.test('the list over the limit is 429', async (t) => {
  const { token } = await makeCaller(instance, { rateLimitRpm: 1 })
  const answers = [await list(token), await list(token), await list(token)]
  const over = answers.filter(({ status }) => status !== 200)
  t.ok(over.length >= 1)
  for (const answer of over) expectError(t, answer, 'rate_limit_exceeded')
})

// GET /v1/keys/{id} and GET /v1/keys: a user sees all its own keys, in any state, newest first, one
// page at a time.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { type Code, expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const nowS = () => Math.floor(Date.now() / 1000)

const get = (token: string, id: string) => instance.ask('GET', `/v1/keys/${id}`, { token })
const list = (token: string, query = '') => instance.ask('GET', `/v1/keys${query}`, { token })
const idsOf = (body: { data: { id: string }[] }) => body.data.map(({ id }) => id)

/** A caller with keys in all states; ids newest first. */
async function callerWithKeys(count: number) {
  const { id, token, userId } = await makeCaller(instance)
  const ids = [id]
  for (let made = 1; made < count; made++) {
    const key = await makeKey(instance, { userId, expiresAt: made % 5 === 0 ? 1000 : null })
    if (made % 7 === 0) await instance.ask('DELETE', `/v1/keys/${key.id}`, { token })
    ids.unshift(key.id)
  }
  return { token, userId, ids }
}

t.test('a key of the caller is 200 and the key object', async (t) => {
  const caller = await makeCaller(instance)
  const expiresAt = nowS() + 3600
  const wanted = { userId: caller.userId, name: 'mine', rateLimitRpm: 12, expiresAt }
  const { token, userId, ...key } = await makeKey(instance, wanted)
  const answer = await get(caller.token, key.id)
  t.equal(answer.status, 200)
  expectRated(t, answer)
  expectKey(t, answer.body)
  t.same(answer.body, key)
  t.match(answer.body, { name: 'mine', rate_limit_rpm: 12, expires_at: expiresAt, last_used_at: null })
  t.equal(answer.body.key_prefix, token.slice(0, 10))
})

t.test('the list has all keys of its user and no others, as GET shows them', async (t) => {
  await makeCaller(instance)
  const { id, token, userId } = await makeCaller(instance)
  const expired = await makeKey(instance, { userId, expiresAt: nowS() - 60 })
  const revoked = await makeKey(instance, { userId })
  await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token })
  const answer = await list(token)
  t.equal(answer.status, 200)
  expectRated(t, answer)
  t.same(Object.keys(answer.body).sort(), ['data', 'has_more', 'next_cursor', 'object'])
  t.match(answer.body, { object: 'list', has_more: false, next_cursor: null })
  t.same(idsOf(answer.body), [revoked.id, expired.id, id], 'newest first')
  for (const shown of answer.body.data) expectKey(t, shown)
  for (const shown of answer.body.data.slice(0, 2)) t.same(shown, (await get(token, shown.id)).body)
})

t.test('a page has 100 keys by default, and says whether there are more', async (t) => {
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
  t.same(idsOf(second), idsOf(full).slice(-1))
  t.equal((await list(token, '?limit=100')).body.data.length, 100)
})

t.test('after the oldest key comes an empty last page', async (t) => {
  const { id, token } = await makeCaller(instance)
  const { status, body } = await list(token, `?starting_after=${id}`)
  t.equal(status, 200)
  t.same(body, { object: 'list', data: [], has_more: false, next_cursor: null })
})

t.test('each status lists its keys, and its cursor may be a key of another status', async (t) => {
  const { id, token, userId } = await makeCaller(instance)
  const make = async (expiresAt: number | null, isRevoked: boolean) => {
    const key = await makeKey(instance, { userId, expiresAt })
    if (isRevoked) await instance.ask('DELETE', `/v1/keys/${key.id}`, { token })
    return key.id
  }
  const active = [id, await make(null, false), await make(nowS() + 3600, false)]
  const expired = [await make(nowS() - 60, false), await make(1, false)]
  // A key that is both is revoked.
  const revoked = [await make(null, true), await make(nowS() + 3600, true), await make(nowS() - 60, true)]
  for (const [status, ids] of Object.entries({ active, expired, revoked })) {
    t.same(idsOf((await list(token, `?status=${status}`)).body), ids.toReversed(), status)
  }
  const { body } = await list(token, `?status=active&starting_after=${expired[0]}`)
  t.same(idsOf(body), active.toReversed())
})

t.test('a query that is not allowed is 400 and names the parameter', async (t) => {
  const { token } = await makeCaller(instance)
  const limits = ['0', '101', '-1', '1.5', '1e1', '0x10', 'ten', '', '%20', '99999999999999999999', '%zz']
  const refused: [query: string, code: Code, param: string][] = [
    ...limits.map((limit): [string, Code, string] => [`?limit=${limit}`, 'invalid_parameter', 'limit']),
    ['?status=', 'invalid_parameter', 'status'],
    ['?status=ACTIVE', 'invalid_parameter', 'status'],
    ['?status=deleted', 'invalid_parameter', 'status'],
    ['?page=2', 'unknown_parameter', 'page'],
    ['?limit=2&offset=5', 'unknown_parameter', 'offset'],
  ]
  for (const [query, code, param] of refused) {
    const answer = await list(token, query)
    expectError(t, answer, code, param)
    expectRated(t, answer)
  }
  const twice = await list(token, '?limit=10&limit=10')
  expectError(t, twice, 'invalid_parameter', 'limit')
  t.match(twice.body.error.message, /more than once/)
})

const pageSizes = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 20 })
const anyPageSizes = fc.oneof(
  pageSizes,
  fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 1, maxLength: 20 }),
)

/**
 * The ids of all pages of these sizes, the last of which repeats. `between` runs while each page is
 * asked for.
 */
async function walk(token: string, sizes: number[], status?: string, between?: () => Promise<unknown>) {
  const seen: string[] = []
  for (let page = 0; ; page++) {
    const limit = sizes[Math.min(page, sizes.length - 1)]!
    const query = new URLSearchParams({ limit: String(limit), ...(status !== undefined && { status }) })
    if (page > 0) query.set('starting_after', seen.at(-1)!)
    const [{ body }] = await Promise.all([list(token, `?${query}`), between?.()])
    seen.push(...idsOf(body))
    assert.equal(body.next_cursor, body.has_more ? seen.at(-1) : null)
    assert.ok(body.data.length > 0, 'no page is empty')
    if (!body.has_more) return seen
    assert.equal(body.data.length, limit, 'a page with more behind it is full')
  }
}

t.test(
  'any sequence of page sizes walks all keys once, newest first, and so do the three statuses',
  async () => {
    const { token, ids } = await callerWithKeys(43)
    await fc.assert(
      fc.asyncProperty(anyPageSizes, async (sizes) => assert.deepEqual(await walk(token, sizes), ids)),
      { numRuns: 6 },
    )
    await fc.assert(
      fc.asyncProperty(pageSizes, async (sizes) => {
        const walks = []
        for (const status of ['active', 'revoked', 'expired']) walks.push(await walk(token, sizes, status))
        for (const seen of walks)
          assert.deepEqual(
            seen,
            ids.filter((id) => seen.includes(id)),
          )
        assert.deepEqual(walks.flat().sort(), ids.toSorted())
      }),
      { numRuns: 2 },
    )
  },
)

t.test('a walk sees every key that was there when it began, once, while others are created', async () => {
  await fc.assert(
    fc.asyncProperty(pageSizes, fc.integer({ min: 1, max: 3 }), async (sizes, perPage) => {
      const { token, userId, ids } = await callerWithKeys(12)
      const create = () => Promise.all(Array.from({ length: perPage }, () => makeKey(instance, { userId })))
      const seen = await walk(token, sizes, undefined, create)
      assert.equal(new Set(seen).size, seen.length, 'nothing twice')
      assert.deepEqual(seen.slice(-ids.length), ids, 'new keys come before, never between')
    }),
    { numRuns: 3 },
  )
})

t.test('keys created at once on two instances have one order', async () => {
  const other = await startInstance(t, services)
  const { id, token } = await makeCaller(instance)
  const create = (_: unknown, i: number) =>
    (i % 2 ? instance : other).ask('POST', '/v1/keys', { token, json: { name: `at once ${i}` } })
  const created = await Promise.all(Array.from({ length: 40 }, create))
  const all = await walk(token, [100])
  assert.deepEqual(all.toSorted(), [id, ...created.map(({ body }) => body.id)].sort())
  await fc.assert(
    fc.asyncProperty(pageSizes, async (sizes) => assert.deepEqual(await walk(token, sizes), all)),
    { numRuns: 2 },
  )
})

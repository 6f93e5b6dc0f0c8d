// Paging as a property: however a client cuts its pages, it sees every key exactly once, newest first.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)

const pageSizes = fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 1, maxLength: 20 })
const smallPageSizes = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 20 })

/** All pages by the given sizes, the last of which repeats; `between` runs while each page is asked for. */
async function walk(
  token: string,
  sizes: number[],
  { status, between }: { status?: string; between?: () => Promise<unknown> } = {},
) {
  const seen: string[] = []
  let cursor: string | null = null
  for (let page = 0; ; page++) {
    const query = new URLSearchParams({ limit: String(sizes[Math.min(page, sizes.length - 1)]) })
    if (cursor !== null) query.set('starting_after', cursor)
    if (status !== undefined) query.set('status', status)
    const [{ body }] = await Promise.all([instance.ask('GET', `/v1/keys?${query}`, { token }), between?.()])
    seen.push(...body.data.map(({ id }: { id: string }) => id))
    assert.equal(body.has_more, body.next_cursor !== null)
    if (!body.has_more) return seen
    assert.equal(body.data.length, Number(query.get('limit')), 'a page with more behind it is full')
    assert.equal(body.next_cursor, seen.at(-1))
    cursor = body.next_cursor
  }
}

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

t.test('any sequence of page sizes walks all keys exactly once, newest first', async () => {
  const { token, ids } = await callerWithKeys(43)
  await fc.assert(
    fc.asyncProperty(fc.oneof(pageSizes, smallPageSizes), async (sizes) => {
      assert.deepEqual(await walk(token, sizes), ids)
    }),
    { numRuns: 40 },
  )
})

t.test('the walks of the three statuses together see all keys exactly once', async () => {
  const { token, ids } = await callerWithKeys(43)
  await fc.assert(
    fc.asyncProperty(smallPageSizes, async (sizes) => {
      const walks = []
      for (const status of ['active', 'revoked', 'expired']) walks.push(await walk(token, sizes, { status }))
      for (const seen of walks)
        assert.deepEqual(
          seen,
          ids.filter((id) => seen.includes(id)),
          'newest first',
        )
      assert.ok(walks.every((seen) => seen.length > 0))
      assert.deepEqual(walks.flat().sort(), ids.toSorted())
    }),
    { numRuns: 10 },
  )
})

t.test(
  'a walk sees every key that was there when it began, exactly once, while keys are being created',
  async () => {
    await fc.assert(
      fc.asyncProperty(smallPageSizes, fc.integer({ min: 1, max: 3 }), async (sizes, perPage) => {
        const { token, userId, ids } = await callerWithKeys(12)
        const between = () =>
          Promise.all(Array.from({ length: perPage }, () => makeKey(instance, { userId })))
        const seen = await walk(token, sizes, { between })
        assert.equal(new Set(seen).size, seen.length, 'nothing twice')
        assert.deepEqual(
          seen.filter((id) => ids.includes(id)),
          ids,
        )
        assert.ok(
          !seen.slice(-ids.length).some((id) => !ids.includes(id)),
          'new keys come before, never between',
        )
      }),
      { numRuns: 15 },
    )
  },
)

t.test('keys created at once, on two instances, are in one order that every walk keeps', async () => {
  const other = await startInstance(t, services)
  const { id, token } = await makeCaller(instance)
  const created = await Promise.all(
    Array.from({ length: 40 }, (_, i) =>
      (i % 2 ? instance : other).ask('POST', '/v1/keys', { token, json: { name: `at once ${i}` } }),
    ),
  )
  const whole = await walk(token, [100])
  assert.deepEqual(whole.toSorted(), [id, ...created.map(({ body }) => body.id)].sort())
  await fc.assert(
    fc.asyncProperty(smallPageSizes, async (sizes) => assert.deepEqual(await walk(token, sizes), whole)),
    { numRuns: 10 },
  )
})

// Ids are unique and sort by the time of their creation.
import fc from 'fast-check'
import t from 'tap'
import { type IdPrefix, idOrNone, isRequestId, newId } from '../../src/rules/id.ts'

/** The module loaded again: what it draws once per process is drawn again. */
const anotherProcess = (name: string): Promise<{ newId: typeof newId }> =>
  import(new URL(`../../src/rules/id.ts?${name}`, import.meta.url).href)

const isSortedAndUnique = (ids: string[]) => ids.every((id, i) => i === 0 || ids[i - 1]! < id)

t.test('an id is its prefix and 26 lowercase letters and digits', async (t) => {
  const prefixes: IdPrefix[] = ['apk_', 'usr_', 'aud_', 'req_', 'ins_']
  for (const prefix of prefixes) t.match(newId(prefix), new RegExp(`^${prefix}[0-9a-z]{26}$`))
})

t.test('ids are unique and sorted even if the clock steps back', async () => {
  const stepsMs = fc.array(fc.integer({ min: -5000, max: 5000 }), { minLength: 1, maxLength: 200 })
  fc.assert(
    fc.property(stepsMs, (steps) => {
      let nowMs = Date.now()
      const ids = steps.map((step) => {
        nowMs += step
        return newId('req_', nowMs)
      })
      return isSortedAndUnique(ids)
    }),
  )
})

t.test('a hundred thousand ids of one millisecond are unique and sorted', async (t) => {
  const nowMs = Date.now() + 60_000
  t.ok(isSortedAndUnique(Array.from({ length: 100_000 }, () => newId('req_', nowMs))))
})

t.test('ids sort by time across the years, at one length', async (t) => {
  // A fresh module, because this one has already seen later times.
  const { newId } = await anotherProcess('years')
  const days = ['1970-01-02', '2001-09-09', '2026-01-01', '2059-12-31', '2100-01-01', '5000-01-01']
  const ids = days.map((day) => newId('apk_', Date.parse(day)))
  t.ok(isSortedAndUnique(ids))
  t.equal(new Set(ids.map(({ length }) => length)).size, 1)
})

t.test('two processes never create the same id in one millisecond', async (t) => {
  const [one, other] = [await anotherProcess('one'), await anotherProcess('other')]
  const nowMs = Date.now()
  const ids = [one, other].flatMap(({ newId }) => Array.from({ length: 1000 }, () => newId('apk_', nowMs)))
  t.equal(new Set(ids).size, 2000)
})

t.test(
  'an id is its millisecond, a counter that restarts with each, and the part of the process',
  async (t) => {
    const { newId } = await anotherProcess('layout')
    const nowMs = Date.UTC(2026, 0, 1)
    const partsOf = (id: string) => [
      Number.parseInt(id.slice(4, 13), 36) - nowMs,
      Number.parseInt(id.slice(13, 18), 36),
    ]
    const ids = [0, 0, 0, 1, 1, 0, 7].map((afterMs) => newId('usr_', nowMs + afterMs))
    // The clock steps back before the last but one.
    t.strictSame(ids.map(partsOf), [
      [0, 0],
      [0, 1],
      [0, 2],
      [1, 0],
      [1, 1],
      [1, 2],
      [7, 0],
    ])
    t.equal(new Set(ids.map((id) => id.slice(18))).size, 1)
    const many = Array.from({ length: 3000 }, () => newId('usr_', nowMs + 8))
    t.strictSame(
      many.map(partsOf),
      many.map((_, n) => [8, n]),
    )
  },
)

t.test('a text is an id if it has the prefix, then letters and digits', async (t) => {
  const id = newId('apk_')
  for (const text of [id, 'apk_1', `apk_${'Z'.repeat(100)}`]) t.equal(idOrNone('apk_', text), text)
  const others = [
    '',
    'apk_',
    `apk_${'Z'.repeat(101)}`,
    'apk_a-b',
    'apk_\0',
    `${id}\n`,
    ` ${id}`,
    'usr_1',
    '1',
  ]
  for (const text of others) t.equal(idOrNone('apk_', text), '', JSON.stringify(text))
})

t.test('a request id is one to 64 visible ASCII characters', async (t) => {
  for (const id of [newId('req_'), '!', '~', 'x'.repeat(64)]) t.equal(isRequestId(id), true, id)
  for (const id of ['', 'a b', 'ü', 'a\n', 'x'.repeat(65), 5, null, ['a']]) t.equal(isRequestId(id), false)
})

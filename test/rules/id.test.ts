// Ids: unique, in the order of their making, of letters and digits.
import fc from 'fast-check'
import t from 'tap'
import { type IdPrefix, newId } from '../../src/rules/id.ts'

const prefixes: IdPrefix[] = ['apk_', 'usr_', 'aud_', 'req_']

t.test('an id is its prefix and 26 lowercase letters and digits', async (t) => {
  for (const prefix of prefixes) t.match(newId(prefix), new RegExp(`^${prefix}[0-9a-z]{26}$`))
})

t.test('ids made one after another are all different and sorted, whatever the clock does', async (t) => {
  const startMs = Date.now()
  fc.assert(
    // Steps of the clock, forwards, not at all and backwards.
    fc.property(
      fc.array(fc.integer({ min: -5000, max: 5000 }), { minLength: 1, maxLength: 200 }),
      (steps) => {
        let nowMs = startMs
        const ids = steps.map((step) => {
          nowMs += step
          return newId('req_', nowMs)
        })
        return new Set(ids).size === ids.length && ids.join() === ids.slice().sort().join()
      },
    ),
  )
  t.pass('for every course of the clock tried')
})

t.test('a hundred thousand ids of one millisecond are different and sorted', async (t) => {
  const nowMs = Date.now() + 60_000
  const ids = Array.from({ length: 100_000 }, () => newId('req_', nowMs))
  t.equal(new Set(ids).size, ids.length)
  t.ok(ids.every((id, i) => i === 0 || ids[i - 1]! < id))
})

t.test('ids sort by the moment of their making, also across the years', async (t) => {
  // A module of its own, so that the moments of other tests are not yet in its past.
  const { newId } = await anotherProcess('years')
  const moments = ['1970-01-02', '2001-09-09', '2026-01-01', '2059-12-31', '2100-01-01', '5000-01-01']
  const ids = moments.map((moment) => newId('apk_', Date.parse(moment)))
  t.strictSame(ids, ids.slice().sort())
  t.equal(new Set(ids.map(({ length }) => length)).size, 1)
})

t.test('processes that make ids in one millisecond make different ones', async (t) => {
  const [one, other] = [await anotherProcess('one'), await anotherProcess('other')]
  const nowMs = Date.now()
  const ids = [one, other].flatMap(({ newId }) => Array.from({ length: 1000 }, () => newId('apk_', nowMs)))
  t.equal(new Set(ids).size, 2000)
})

/** The module loaded anew: what it draws once for each process is drawn again. */
const anotherProcess = (name: string): Promise<{ newId: typeof newId }> =>
  import(new URL(`../../src/rules/id.ts?${name}`, import.meta.url).href)

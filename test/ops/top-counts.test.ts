// The highest of many counts, however many there are and in whatever order they come.
import fc from 'fast-check'
import t from 'tap'
import { createTopCounts } from '../../src/ops/top-counts.ts'

t.test('the highest counts stay, whatever else is added and how often', async (t) => {
  const count = fc.record({ keyId: fc.nat(60).map(String), count: fc.integer({ min: 1, max: 99 }) })
  fc.assert(
    fc.property(fc.array(fc.array(count)), fc.integer({ min: 1, max: 8 }), (slices, keep) => {
      const top = createTopCounts(keep)
      const known = new Map<string, number>()
      for (const slice of slices) {
        top.add(slice)
        for (const { keyId, count } of slice) known.set(keyId, Math.max(count, known.get(keyId) ?? 0))
      }
      const highest = [...known.values()].sort((a, b) => b - a).slice(0, keep)
      const kept = top.highest(keep)
      const isRight = kept.every(({ keyId, count }) => known.get(keyId) === count)
      return isRight && kept.map(({ count }) => count).join() === highest.join()
    }),
  )
  t.equal(createTopCounts(5).highest(5).length, 0)
})

t.test('the few highest counts are those that sorting all of them finds', async (t) => {
  const counts = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 400 })
  fc.assert(
    fc.property(counts, fc.integer({ min: 1, max: 300 }), (counts, max) => {
      const top = createTopCounts(400)
      top.add(counts.map((count, i) => ({ keyId: `apk_${i}`, count })))
      const found = top.highest(max).map(({ keyId, count }) => `${keyId} ${count}`)
      const all = top.highest(400).map(({ keyId, count }) => `${keyId} ${count}`)
      return found.join() === all.slice(0, max).join()
    }),
  )
  const even = createTopCounts(400)
  even.add(Array.from({ length: 300 }, (_, i) => ({ keyId: `apk_${i}`, count: 1 })))
  t.equal(even.highest(250).length, 250, 'no more of equal counts than asked for')
})

t.test('at most twice as many counts are remembered as must be kept', async (t) => {
  const top = createTopCounts(10)
  for (let i = 0; i < 1000; i++) top.add([{ keyId: `apk_${i}`, count: i + 1 }])
  t.ok(top.highest(Infinity).length <= 20)
})

t.test('counts that can no longer be among the highest need not be added', async (t) => {
  const top = createTopCounts(10)
  for (let i = 0; i < 19; i++) top.add([{ keyId: `apk_${i}`, count: i + 1 }])
  t.equal(top.floor(), 0)
  top.add([{ keyId: 'apk_19', count: 20 }])
  t.equal(top.floor(), 11, 'the tenth of twenty')
})

t.test('those that are new or have doubled can be taken once, some each time', async (t) => {
  const top = createTopCounts(2)
  const add = (counts: Record<string, number>) =>
    top.add(Object.entries(counts).map(([keyId, count]) => ({ keyId, count })))
  const take = () => top.takeRisen(2).map(({ keyId, count }) => `${keyId} ${count}`)
  add({ a: 5, b: 5, c: 5 })
  t.strictSame([take(), take(), take()], [['a 5', 'b 5'], ['c 5'], []])
  add({ a: 4, b: 7, c: 10 })
  t.strictSame([take(), take()], [['c 10'], []])
  add({ b: 8, d: 12 })
  t.strictSame(take(), ['d 12'], 'but a key that is not remembered any more is not')
  add({ a: 9, e: 6, c: 15, d: 16 })
  t.strictSame(take(), ['d 16'])
  for (let count = 1000; count < 10_000; count += 1000) add({ [`f${count}`]: count })
  t.equal(take().length, 2, 'one that was dropped takes no place')
})

// Counts of the current minute in this process, alone and next to a shared count.
import { install } from '@sinonjs/fake-timers'
import fc from 'fast-check'
import t from 'tap'
import { createMinuteCounts } from '../../src/memory/minute-counts.ts'

const clock = install({ toFake: ['performance'] })
t.teardown(() => clock.uninstall())

t.test('hits of a key in a minute add up, whatever other keys and their numbers', async (t) => {
  const add = fc.record({ key: fc.nat(3), hits: fc.nat(9) })
  fc.assert(
    fc.property(fc.array(add), (adds) => {
      const counts = createMinuteCounts()
      const sums = [0, 0, 0, 0]
      return adds.every(({ key, hits }) => {
        sums[key]! += hits
        return counts.add(`apk_${key}`, 7, hits) === sums[key]
      })
    }),
  )
  t.pass('for every sequence tried')
})

t.test('a new minute starts from zero, also when minutes are skipped', async (t) => {
  const counts = createMinuteCounts()
  for (const minute of [7, 8, 9, 11, 1000, 1001]) {
    t.equal(counts.add('apk_1', minute, 2), 2, `minute ${minute}`)
    t.equal(counts.add('apk_1', minute, 1), 3)
  }
})

t.test('at the boundary both minutes keep their counts', async (t) => {
  const counts = createMinuteCounts()
  t.equal(counts.add('apk_1', 7, 5), 5)
  t.equal(counts.add('apk_1', 8, 1), 1)
  t.equal(counts.add('apk_1', 7, 1), 6)
  t.equal(counts.add('apk_1', 8, 1), 2)
})

t.test('what was counted two minutes ago is dropped as another minute begins', async (t) => {
  const counts = createMinuteCounts()
  counts.add('apk_1', 7, 5)
  clock.tick(118_999)
  counts.add('apk_1', 9, 1)
  t.equal(counts.of(7).get('apk_1'), 5, 'a server may still be in the minute after it')
  clock.tick(1)
  t.equal(counts.takeHits(7), 5)
  counts.add('apk_1', 10, 1)
  t.equal(counts.of(7).size, 0)
  t.strictSame([counts.of(9).get('apk_1'), counts.takeHits(9)], [1, 1])
})

t.test(
  'a shared count below what is known shows that it is short of some hits, for its minute',
  async (t) => {
    const counts = createMinuteCounts()
    counts.add('apk_1', 7, 3, 3)
    counts.add('apk_1', 7, 2, 5)
    counts.add('apk_2', 7, 1, 1)
    counts.add('apk_1', 7, 0, 9)
    t.equal(counts.mayLackCounts(7), false)
    counts.add('apk_2', 7, 1, 1)
    t.equal(counts.mayLackCounts(7), true, 'lost')
    t.equal(counts.mayLackCounts(8), false)
    clock.tick(60_000)
    counts.add('apk_1', 8, 4, 4)
    counts.add('apk_2', 7, 1, 3)
    t.strictSame([counts.mayLackCounts(7), counts.mayLackCounts(8)], [true, false])
    t.equal(counts.mayLackCounts(9), false, 'nothing is known of a minute that has not begun')
    clock.tick(60_000)
    counts.add('apk_1', 9, 0, 0)
    t.strictSame([counts.mayLackCounts(7), counts.mayLackCounts(9)], [false, false])
    counts.add('apk_1', 9, 1)
    t.equal(counts.mayLackCounts(9), true, 'counted without it')
    t.equal(counts.mayLackCounts(8), false)
    counts.markIncomplete(9)
    t.equal(counts.mayLackCounts(8), true)
    t.equal(counts.of(8).get('apk_1'), 4, 'what was known is not lost')
    clock.tick(120_000)
    counts.markIncomplete(11)
    t.strictSame(
      [counts.mayLackCounts(10), counts.mayLackCounts(11), counts.mayLackCounts(9)],
      [true, true, false],
    )
  },
)

t.test(
  'marking a minute as short keeps the counts of a later one, begun by a clock that is ahead',
  async (t) => {
    const counts = createMinuteCounts()
    counts.add('apk_1', 8, 6, 6)
    counts.markIncomplete(7)
    t.strictSame(
      [counts.mayLackCounts(6), counts.mayLackCounts(7), counts.mayLackCounts(8)],
      [true, true, false],
    )
    t.equal(counts.add('apk_1', 8, 1, 1), 7)
  },
)

t.test('a count is never less than the shared one, nor than what was known plus its hits', async (t) => {
  const counts = createMinuteCounts()
  t.equal(counts.add('apk_1', 7, 1, 40), 40, 'others have counted too')
  t.equal(counts.add('apk_1', 7, 2, 42), 42)
  t.equal(counts.add('apk_1', 7, 2), 44, 'the shared store is down: on from the last count seen')
  t.equal(counts.add('apk_1', 7, 1, 1), 45, 'it has lost its count')
  t.equal(counts.add('apk_1', 7, 1, 60), 60)
  t.equal(counts.add('apk_1', 7, 0, 70), 70, 'a count that is only learned')
  t.equal(counts.add('apk_1', 7, 1), 71)
  fc.assert(
    fc.property(
      fc.array(fc.record({ hits: fc.nat(5), shared: fc.option(fc.nat(100), { nil: undefined }) })),
      (adds) => {
        const counts = createMinuteCounts()
        let known = 0
        return adds.every(({ hits, shared }) => {
          const count = counts.add('apk_1', 7, hits, shared)
          const right = count === Math.max(known + hits, shared ?? 0)
          known = count
          return right
        })
      },
    ),
  )
})

t.test('a shared count that others have overtaken is not a lost one', (t) => {
  const counts = createMinuteCounts()
  const reported = [77, 79, 78, 80]
  t.strictSame(
    reported.map((shared) => counts.add('apk_1', 1, 1, shared, 76)),
    reported,
  )
  counts.add('apk_1', 1, 1, 78, 77)
  t.equal(counts.mayLackCounts(1), false)
  t.equal(counts.add('apk_1', 1, 1, 77, 77), 81, 'one that lacks what was known was lost')
  t.equal(counts.mayLackCounts(1), true)
  t.end()
})

t.test('a shared count of the last minute says nothing about this one', async (t) => {
  const counts = createMinuteCounts()
  counts.add('apk_1', 7, 1, 500)
  t.equal(counts.add('apk_1', 8, 1), 1)
})

t.test('a key without room is not counted, and a known one still is', async (t) => {
  const counts = createMinuteCounts(2)
  t.equal(counts.add('apk_1', 7, 1), 1)
  t.equal(counts.add('apk_2', 7, 1), 1)
  t.equal(counts.add('apk_3', 7, 1), 0, 'no room')
  t.equal(counts.add('apk_3', 7, 5), 0, 'nor at its next hits')
  t.equal(counts.add('apk_1', 7, 2), 3)
  t.equal(counts.add('apk_3', 7, 1, 40), 40, 'the shared store has counted it')
  t.equal(counts.add('apk_3', 7, 1), 0, 'that count is not remembered')
  t.equal(counts.takeHits(7), 5, 'each that was counted, here or there')
  t.equal(counts.add('apk_3', 8, 1), 1, 'the next minute has room')
})

t.test('hits are handed over once, those of each minute by themselves', async (t) => {
  const counts = createMinuteCounts()
  t.equal(counts.takeHits(7), 0, 'none yet')
  counts.add('apk_1', 7, 3)
  counts.add('apk_2', 8, 1)
  t.equal(counts.takeHits(7), 3)
  t.equal(counts.takeHits(7), 0, 'nothing has come since')
  counts.add('apk_1', 7, 2)
  t.strictSame([counts.takeHits(7), counts.takeHits(8)], [2, 1])
})

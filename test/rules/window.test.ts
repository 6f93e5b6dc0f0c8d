// The minutes in which requests are counted.
import t from 'tap'
import { minuteOf, resetAtSOf } from '../../src/rules/window.ts'

t.test('a window is a minute of Unix time', async (t) => {
  t.equal(minuteOf(0), 0)
  t.equal(minuteOf(59_999), 0)
  t.equal(minuteOf(60_000), 1)
  const newYearMs = Date.parse('2026-01-01T00:00:00Z')
  t.equal(minuteOf(newYearMs), newYearMs / 60_000)
  t.equal(minuteOf(newYearMs - 1), newYearMs / 60_000 - 1)
})

t.test('a window ends when the next one begins, at a whole second', async (t) => {
  t.strictSame([0, 59_999, 60_000].map(resetAtSOf), [60, 60, 120])
})

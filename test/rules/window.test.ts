// The minute window that a request is counted in.
import fc from 'fast-check'
import t from 'tap'
import { minuteOf, resetAtSOf } from '../../src/rules/window.ts'

t.test('a window is a minute of Unix time', async (t) => {
  t.equal(minuteOf(0), 0)
  t.equal(minuteOf(59_999), 0)
  t.equal(minuteOf(60_000), 1)
  t.strictSame([0, 59_999, 60_000].map(resetAtSOf), [60, 60, 120])
  t.equal(minuteOf(Date.parse('2026-01-01T00:00:00Z')), Date.parse('2026-01-01T00:00:00Z') / 60_000)
})

t.test('every moment is in exactly one window, and windows follow one another', async (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 4_102_444_800_000 }), (nowMs) => {
      const minute = minuteOf(nowMs)
      const sameWithin = minuteOf(minute * 60_000) === minute && minuteOf(minute * 60_000 + 59_999) === minute
      const resets = resetAtSOf(nowMs) === (minute + 1) * 60
      return (
        Number.isInteger(minute) && sameWithin && resets && minuteOf((minute + 1) * 60_000) === minute + 1
      )
    }),
  )
  t.pass('for every moment tried')
})

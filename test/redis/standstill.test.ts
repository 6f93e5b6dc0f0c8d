// Redis's clock shows that ours has stood still. The test sets both.
import t from 'tap'
import { watchStandstill } from '../../src/redis/standstill.ts'
import { setClock } from '../clock.ts'

t.test('only what a late reply or a clock that is set back cannot explain is a standstill', (t) => {
  const clock = setClock(t)
  const stoodStill = watchStandstill()
  const startMs = performance.now()
  /** `aheadMs`: of Redis's clock. */
  const reply = (afterMs: number, aheadMs: number) => {
    clock.advance(afterMs)
    return stoodStill(performance.now() + aheadMs)
  }
  t.equal(stoodStill(startMs + 5000), false, 'the clocks may differ')
  t.equal(reply(10, 5150), false)
  t.equal(reply(10, 5301), true)
  t.equal(reply(10, 5301), false, 'once')
  t.equal(reply(10, 5202), false, 'a late reply')
  t.equal(reply(59_000, 5202), false)
  t.equal(reply(10, 5451), false, 'the one before was late')
  t.equal(reply(10, 5602), true)

  t.equal(reply(10, 5700), false)
  t.equal(reply(10, 5753), true, 'two short ones')

  t.equal(reply(10, 1000), false, 'the server has set its clock back')
  t.equal(reply(60_001, 1000), false)
  t.equal(reply(10, 1300), false, 'it may be right again')
  t.equal(reply(60_001, 1000), false)
  t.equal(reply(60_001, 1000), false)
  t.equal(reply(10, 1151), true)
  t.end()
})

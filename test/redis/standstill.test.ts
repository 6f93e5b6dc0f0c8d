// Redis's clock shows that ours has stood still. The test sets both.
import t from 'tap'
import { watchStandstill } from '../../src/redis/standstill.ts'
import { setClock } from '../clock.ts'

t.test('what a late reply cannot explain is a standstill', (t) => {
  const clock = setClock(t)
  const stoodStill = watchStandstill()
  /**
   * After that time, a call that Redis runs after `toMs` is answered `backMs` later. `aheadMs`: of
   * its clock.
   */
  const reply = (afterMs: number, aheadMs: number, toMs = 0, backMs = 0) => {
    clock.advance(afterMs)
    const sentAtMs = performance.now()
    const nowMs = sentAtMs + toMs + aheadMs
    clock.advance(toMs + backMs)
    return stoodStill(nowMs, sentAtMs)
  }
  t.equal(reply(0, 5000, 0, 900), false, 'the clocks may differ')
  t.equal(reply(10, 5150), false)
  t.equal(reply(10, 5151), true)
  t.equal(reply(10, 5151), false, 'once')
  t.equal(reply(10, 5151, 300, 300), false, 'a late reply')
  t.equal(reply(10, 5400, 0, 300), false, 'it may have been late')
  t.equal(reply(59_000, 5151), false)
  t.equal(reply(10, 5301), false)
  t.equal(reply(10, 5302), true, 'two short ones')

  t.equal(reply(10, 5152), false, "the server's clock is slower")
  t.equal(reply(10, 5303), true, 'what it has lost hides nothing')
  t.equal(reply(10, 1000), true, 'one may be hidden if it has set its clock back')
  t.equal(reply(10, 5303), true, 'the clock is right again')

  t.equal(reply(10, 5200), false)
  t.equal(reply(60_001, 5303), false)
  t.equal(reply(10, 5351), true, 'the lowest of the last minute counts')
  t.equal(reply(60_001, 5351), false)
  t.equal(reply(10, 5351), false, 'and none from before')
  t.end()
})

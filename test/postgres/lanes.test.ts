// Who gets the next connection: while others wait, no lane holds more than half, and no lane waits
// behind another.
import fc from 'fast-check'
import t from 'tap'
import { createLanes } from '../../src/postgres/lanes.ts'

/** The test ends the works; `started`: their names in the order in which they started. */
function byHand(places = 4) {
  const lanes = createLanes(places)
  const started: string[] = []
  const enter = (name: string, lane?: string) => {
    const turn = lanes.enter(lane)
    if (turn === undefined) started.push(name)
    else void turn.then(() => started.push(name))
  }
  const leave = async (lane?: string) => {
    lanes.leave(lane)
    await Promise.resolve()
  }
  return { enter, leave, started }
}

t.test('a lane has half of the places, and the others stay free for other lanes', async (t) => {
  const { enter, leave, started } = byHand()
  for (const n of [1, 2, 3, 4]) enter(`a${n}`, 'a')
  t.strictSame(started, ['a1', 'a2'])
  enter('b1', 'b')
  enter('c1', 'c')
  t.strictSame(started.slice(2), ['b1', 'c1'])
  await leave('b')
  t.equal(started.length, 4, 'its two are still running')
  await leave('a')
  await leave('a')
  t.strictSame(started.slice(4), ['a3', 'a4'])
})

t.test('lanes take turns when all places are taken', async (t) => {
  const { enter, leave, started } = byHand(2)
  enter('x', 'x')
  enter('y', 'y')
  for (const n of [1, 2, 3]) enter(`a${n}`, 'a')
  enter('b1', 'b')
  enter('c1', 'c')
  for (const lane of ['x', 'a', 'b', 'c']) await leave(lane)
  t.strictSame(started, ['x', 'y', 'a1', 'b1', 'c1', 'a2'])
})

t.test('a lane without work is forgotten, and has lost its turn', async (t) => {
  const { enter, leave, started } = byHand(2)
  enter('a1', 'a')
  await leave('a')
  enter('x', 'x')
  enter('y', 'y')
  enter('b1', 'b')
  enter('a2', 'a')
  await leave('x')
  t.strictSame(started.slice(3), ['b1'])
})

t.test('work without a lane may use every place', async (t) => {
  const { enter, leave, started } = byHand()
  for (const n of [1, 2, 3, 4, 5]) enter(`${n}`)
  t.strictSame(started, ['1', '2', '3', '4'])
  await leave()
  t.equal(started[4], '5')
})

t.test('a lane that is full sheds its own works only', async (t) => {
  const { enter, started } = byHand()
  for (let n = 0; n < 502; n++) enter('a', 'a')
  t.throws(() => enter('a', 'a'), { message: /too many/, statusCode: 503 })
  enter('b', 'b')
  t.equal(started.at(-1), 'b')
})

t.test('at most 10,000 wait in all lanes together; a lane that is shed has no turn to come', async (t) => {
  const { enter, leave, started } = byHand(1)
  enter('first', 'a')
  for (let n = 0; n < 10_000; n++) enter('waiting', `lane ${n % 20}`)
  t.throws(() => enter('b', 'b'), { message: /too many/, statusCode: 503 })
  for (const lane of ['a', 'lane 0']) await leave(lane)
  enter('b', 'b')
  for (let n = 1; n < 20; n++) await leave(`lane ${n}`)
  t.notOk(started.includes('b'), 'all others come first')
  await leave('lane 0')
  await leave('lane 1')
  t.equal(started.at(-1), 'b')
})

t.test('no bound is exceeded, and no place stays free that a waiting work may have', async (t) => {
  const names = ['a', 'b', 'c', undefined]
  const step = fc.record({ lane: fc.constantFrom(...names), leaves: fc.boolean() })
  const some = fc.array(step, { maxLength: 100 })
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 5 }), some, async (places, steps) => {
      const { enter, leave, started } = byHand(places)
      const half = Math.ceil(places / 2)
      const entered: string[] = []
      const left: string[] = []
      const count = (all: string[], lane?: string) => all.filter((one) => one === String(lane)).length
      const running = (lane?: string) => count(started, lane) - count(left, lane)
      for (const { lane, leaves } of steps) {
        if (leaves && running(lane) > 0) {
          left.push(String(lane))
          await leave(lane)
        } else {
          entered.push(String(lane))
          enter(String(lane), lane)
        }
        const all = started.length - left.length
        if (all > places || names.some((one) => one !== undefined && running(one) > half)) return false
        const mayStart = names.some(
          (one) => count(entered, one) > count(started, one) && (one === undefined || running(one) < half),
        )
        if (all < places && mayStart) return false
      }
      return true
    }),
    { numRuns: 500 },
  )
  t.pass('for every sequence tried')
})

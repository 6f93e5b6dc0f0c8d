// Who may use a connection next: nobody's works hold more than half of them while others wait, and nobody's wait for another's.
import fc from 'fast-check'
import t from 'tap'
import { createLanes } from '../../src/postgres/lanes.ts'

/** Lanes whose works end when told to; `started`: their names in the order in which they started. */
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

t.test('a lane has half of the places, and the others are there for other lanes', async (t) => {
  const { enter, leave, started } = byHand()
  for (const n of [1, 2, 3, 4]) enter(`a${n}`, 'a')
  t.strictSame(started, ['a1', 'a2'])
  enter('b1', 'b')
  enter('c1', 'c')
  t.strictSame(started.slice(2), ['b1', 'c1'])
  await leave('b')
  t.equal(started.length, 4, 'its own are under way')
  await leave('a')
  await leave('a')
  t.strictSame(started.slice(4), ['a3', 'a4'])
})

t.test('where all places are taken the lanes take turns', async (t) => {
  const { enter, leave, started } = byHand(2)
  enter('x', 'x')
  enter('y', 'y')
  for (const n of [1, 2, 3]) enter(`a${n}`, 'a')
  enter('b1', 'b')
  enter('c1', 'c')
  await leave('x')
  await leave('a')
  await leave('b')
  await leave('c')
  t.strictSame(started, ['x', 'y', 'a1', 'b1', 'c1', 'a2'])
})

t.test('works without a lane may use every place', async (t) => {
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

t.test('no bound is passed and no place is left free while somebody may have it', async (t) => {
  const step = fc.record({ lane: fc.constantFrom('a', 'b', 'c', undefined), leaves: fc.boolean() })
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 5 }),
      fc.array(step, { maxLength: 100 }),
      async (places, steps) => {
        const { enter, leave, started } = byHand(places)
        const mine = Math.ceil(places / 2)
        const entered: (string | undefined)[] = []
        const left: (string | undefined)[] = []
        const count = (all: (string | undefined)[], lane: string | undefined) =>
          all.filter((one) => one === lane).length
        const running = (lane: string | undefined) => count(started, String(lane)) - count(left, lane)
        for (const { lane, leaves } of steps) {
          if (leaves && running(lane) > 0) {
            left.push(lane)
            await leave(lane)
          } else {
            entered.push(lane)
            enter(String(lane), lane)
          }
          const names = ['a', 'b', 'c', undefined]
          const all = names.map(running).reduce((sum, n) => sum + n, 0)
          if (all > places || names.some((one) => one !== undefined && running(one) > mine)) return false
          const may = names.filter(
            (one) =>
              count(entered, one) > count(started, String(one)) && (one === undefined || running(one) < mine),
          )
          if (all < places && may.length > 0) return false
        }
        return true
      },
    ),
    { numRuns: 500 },
  )
  t.pass('for every course tried')
})

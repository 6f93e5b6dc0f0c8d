// Who gets the next connection: while others wait, no lane holds more than half, no lane waits
// behind another, and changes leave a place for reads.
import fc from 'fast-check'
import t from 'tap'
import { createLanes, type Kind, type Turn } from '../../src/postgres/lanes.ts'

/** The test ends the works; `started`: their names in the order in which they started. */
function byHand(places = 4) {
  const lanes = createLanes(places)
  const started: string[] = []
  const enter = (name: string, lane?: string, kind: Kind = 'read'): Turn | undefined => {
    const turn = lanes.enter(kind, lane)
    if (turn === undefined) started.push(name)
    else void turn.come.then(() => started.push(name))
    return turn
  }
  const leave = async (lane?: string, kind: Kind = 'read') => {
    lanes.leave(kind, lane)
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
  enter('c1', 'c')!.giveUp()
  enter('d1', 'd')
  enter('c2', 'c')
  for (const lane of ['y', 'b']) await leave(lane)
  t.strictSame(started.slice(4), ['a2', 'd1'], 'its work may also have given up')
})

t.test('work without a lane may use every place', async (t) => {
  const { enter, leave, started } = byHand()
  for (const n of [1, 2, 3, 4, 5]) enter(`${n}`)
  t.strictSame(started, ['1', '2', '3', '4'])
  await leave()
  t.equal(started[4], '5')
})

t.test('changes of all lanes leave one place for reads', async (t) => {
  const { enter, leave, started } = byHand()
  for (const lane of ['a', 'b']) for (const n of [1, 2]) enter(`${lane}${n}`, lane, 'change')
  t.strictSame(started, ['a1', 'a2', 'b1'])
  enter('read 1', 'c')
  enter('read 2', 'b')
  t.strictSame(started.slice(3), ['read 1'])
  await leave('c')
  t.strictSame(started.slice(4), ['read 2'], 'it passes the change before it')
  await leave('b')
  enter('read 3', 'a')
  await leave('a', 'change')
  t.strictSame(started.slice(5), ['read 3', 'b2'], 'the end of a change lets both start')
  await leave('b', 'change')
  const alone = byHand(1)
  alone.enter('only', 'a', 'change')
  t.strictSame(alone.started, ['only'])
})

t.test('work that gives up waiting leaves its queue', async (t) => {
  const { enter, leave, started } = byHand(1)
  enter('x', 'x')
  const turns = Array.from({ length: 500 }, (_, n) => enter(`a${n}`, 'a'))
  for (const turn of turns.slice(0, -1)) turn!.giveUp()
  enter('b', 'b')
  enter('last', 'a')
  await leave('x')
  await leave('a')
  turns.at(-1)!.giveUp()
  await leave('b')
  t.strictSame(started, ['x', 'a499', 'b', 'last'])
})

t.test('a full lane sheds only its own work', async (t) => {
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

t.test('no bound is exceeded, and no place stays free while work waits for it', async (t) => {
  const names = ['a', 'b', 'c', undefined]
  const kinds: Kind[] = ['read', 'change']
  const step = fc.record({
    lane: fc.constantFrom(...names),
    kind: fc.constantFrom(...kinds),
    leaves: fc.boolean(),
  })
  const some = fc.array(step, { maxLength: 100 })
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 5 }), some, async (places, steps) => {
      const { enter, leave, started } = byHand(places)
      const half = Math.ceil(places / 2)
      const changesMax = Math.max(1, places - 1)
      const entered: string[] = []
      const left: string[] = []
      const nameOf = (kind: Kind, lane?: string) => `${kind} of ${lane}`
      const count = (all: string[], name: string) => all.filter((one) => one === name).length
      const runningOf = (kind: Kind, lane?: string) =>
        count(started, nameOf(kind, lane)) - count(left, nameOf(kind, lane))
      const running = (lane?: string) => runningOf('read', lane) + runningOf('change', lane)
      for (const { lane, kind, leaves } of steps) {
        const name = nameOf(kind, lane)
        if (leaves && runningOf(kind, lane) > 0) {
          left.push(name)
          await leave(lane, kind)
        } else {
          entered.push(name)
          enter(name, lane, kind)
        }
        const all = started.length - left.length
        const changes = names.reduce((sum, one) => sum + runningOf('change', one), 0)
        if (all > places || changes > changesMax) return false
        if (names.some((one) => one !== undefined && running(one) > half)) return false
        const mayStart = names.some(
          (one) =>
            (one === undefined || running(one) < half) &&
            kinds.some(
              (kind) =>
                count(entered, nameOf(kind, one)) > count(started, nameOf(kind, one)) &&
                (kind === 'read' || changes < changesMax),
            ),
        )
        if (all < places && mayStart) return false
      }
      return true
    }),
    { numRuns: 500 },
  )
  t.pass('for every sequence tried')
})

// How many turns of hits may be in flight, by the round trip to Redis.
import t from 'tap'
import { createPace } from '../../src/redis/pace.ts'

/** Measured by one answer. */
function paceAt(roundTripMs: number) {
  const pace = createPace()
  pace.answered(roundTripMs, false)
  return pace
}

t.test('one turn for each 0.1 ms, at least 2 and at most 24', async (t) => {
  t.equal(createPace().turnsMax, 2, 'nothing is measured yet')
  for (const [roundTripMs, turns] of [
    [0.05, 2],
    [0.25, 2],
    [0.45, 4],
    [2, 20],
    [10, 24],
  ] as const)
    t.equal(paceAt(roundTripMs).turnsMax, turns, `${roundTripMs} ms`)
})

t.test('the first half goes at once, the others at a distance, and none beyond the maximum', async (t) => {
  const pace = paceAt(2)
  for (let inFlight = 0; inFlight < 10; inFlight++) t.ok(pace.allows(inFlight, 1000))
  t.notOk(pace.allows(10, 1000.09))
  t.ok(pace.allows(10, 1000.11), 'a twentieth of the round trip after the last one')
  t.notOk(pace.allows(11, 1000.2))
  t.ok(pace.allows(19, 1000.22))
  t.notOk(pace.allows(20, 2000))
})

t.test('the distance is a share of the round trip, and is enough when it is reached', async (t) => {
  const pace = paceAt(2)
  for (let inFlight = 0; inFlight < 10; inFlight++) t.ok(pace.allows(inFlight, 0))
  t.ok(pace.allows(10, 0.1))
})

t.test('with Redis near, both turns go at once', async (t) => {
  const pace = paceAt(0.05)
  t.ok(pace.allows(0, 1000))
  t.ok(pace.allows(1, 1000))
  t.notOk(pace.allows(2, 2000))
})

t.test('16 calls that were alone show that Redis is farther, and others do not', async (t) => {
  const pace = paceAt(0.05)
  const answered = (times: number, ms: number, alone: boolean) => {
    for (let n = 0; n < times; n++) pace.answered(ms, alone)
  }
  answered(100, 2, false)
  t.equal(pace.turnsMax, 2)
  for (const round of [1, 2]) {
    answered(14, 2, true)
    answered(1, 1, true)
    t.equal(pace.turnsMax, round === 1 ? 2 : 10)
    answered(1, 2, true)
    t.equal(pace.turnsMax, 10, 'the shortest of them counts')
  }
  answered(16, 2, true)
  t.equal(pace.turnsMax, 20, 'and only of these')
  answered(1, 1, false)
  t.equal(pace.turnsMax, 10, 'one call shows that it is nearer')
})

t.test('of another server nothing is known', async (t) => {
  const pace = paceAt(0.05)
  for (let n = 0; n < 15; n++) pace.answered(0.06, true)
  pace.reset()
  t.equal(pace.turnsMax, 2)
  pace.answered(2, false)
  t.equal(pace.turnsMax, 20)
  for (let n = 0; n < 15; n++) pace.answered(2.45, true)
  t.equal(pace.turnsMax, 20)
  pace.answered(2.25, true)
  t.equal(pace.turnsMax, 22)
  pace.reset()
  t.equal(pace.turnsMax, 2)
})

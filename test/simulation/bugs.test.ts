// The simulation can fail: each deliberate bug breaks a promise in one of the schedules.
import t from 'tap'
import { recordFigure } from '../soak.ts'
import { bugs } from './bugs.ts'
import { explore, lanes } from './processes.ts'

/** Most are found in the first hundred. */
const schedules = 6000

t.test(`each of ${bugs.length} deliberate bugs is found`, async (t) => {
  const each = Math.ceil(bugs.length / lanes)
  const found = new Map<string, number>()
  const hunt = async (lane: number) => {
    for await (const outcome of explore(1, schedules, lane * each, each)) {
      if (!('bug' in outcome) || outcome.seed === null) continue
      found.set(outcome.bug, outcome.seed)
      t.comment(`${outcome.bug}: found in schedule ${outcome.seed}: ${outcome.wrong}`)
    }
  }
  await Promise.all(Array.from({ length: lanes }, (_, lane) => hunt(lane)))
  t.ok(bugs.length >= 25)
  t.strictSame(
    bugs.map(({ name }) => name).filter((name) => !found.has(name)),
    [],
  )
  recordFigure(t, 'simulation-bugs', {
    ...{ bugs: bugs.length, found: found.size },
    last: Math.max(...found.values()),
  })
})

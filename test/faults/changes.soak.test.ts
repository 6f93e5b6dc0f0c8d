// Once a change is answered on one instance, it decides the next request on every other one,
// although that one has just had the key in its cache.
import t from 'tap'
import { recordFigure, scaled } from '../soak.ts'
import {
  changeEverything,
  changesOf,
  figuresOf,
  inLanes,
  makePeople,
  type Watched,
  watchChange,
  wrongWith,
} from './changes.ts'
import { deleteByCommandLine, startAnyFleet } from './fleet.ts'

/** Of five changes each. */
const stories = scaled(10, 2000)
/** In some of them another process deletes the user. */
const byCommandLine = scaled(1, 50)

const fleet = await startAnyFleet(t)
const { urls } = fleet

t.test('a change on one instance decides the next request on every instance', async (t) => {
  const changed: Watched[] = []
  const again: Watched[] = []
  await inLanes(stories, scaled(4, 8), async (n) => {
    // A Redis inside this process is out of reach for another.
    const apart = n % (stories / byCommandLine) === 0 && fleet.instances.length > 0
    const story = await changeEverything(
      fleet,
      n,
      apart ? (userId) => deleteByCommandLine(t, fleet, userId) : undefined,
    )
    changed.push(...story.watched)
    again.push(story.again)
  })
  const all = [...changed, ...again]
  t.same(wrongWith(all), {}, 'none acts on the old state')
  const { requests, undecided } = figuresOf(all)
  t.equal(requests - undecided, stories * 6 * urls.length, 'each instance was asked after each change')
  recordFigure(t, 'changes', { ...figuresOf(all), changes: changed.length })
})

t.test('under a flood no request sent after the answer is decided by the old state', async (t) => {
  const watched: Watched[] = []
  for (let round = 0; round < scaled(4, 500); round++) {
    const [person] = await makePeople(fleet, 1)
    const { limit, revocation } = changesOf(person!)
    for (const change of [limit(), revocation()])
      watched.push(await watchChange(fleet, round, change, { busy: true, lanes: 3, everyMs: 0, forMs: 20 }))
  }
  t.same(wrongWith(watched), {})
  t.ok(
    watched.every(({ answers }) => answers.some(({ old }) => old)),
    'each was asked for before, too',
  )
})

// Once a change has answered on one instance, the next request on any other is decided by it, although that one has just had the
// key in its cache.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { makeKey } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { everyCounterExpires } from './expiring-counters.ts'
import { changesOf, deletion, makePeople, removeUser, warm } from './key-changes.ts'
import { deleteByCommandLine, patiently, threeInstances } from './three-instances.ts'
import { askedInAll, faultsOf, lookAgain, numbersOf, type Watched, watchChange } from './watched-change.ts'

/** Of five changes each. */
const stories = scaled(30, 2000)
/** The user is deleted by a process of its own in some of them; the others do the same in this one. */
const byCommandLine = scaled(2, 50)
const storiesAtOnce = 8

const three = await threeInstances(t)

t.test('a change on one instance decides the next request on every instance', async (t) => {
  const watched: Watched[] = []
  let made = 0

  async function story(n: number) {
    const people = await makePeople(three.operator)
    const spare = await patiently(() => makeKey(three.operator, { userId: people.userId }))
    for (const { token } of [people.key, people.manager, spare]) await warm(three, token)
    const { limit, expiry, name, revocation } = changesOf(people)
    for (const [i, change] of [limit(), expiry(), name(), revocation()].entries())
      watched.push(await watchChange(three, n + i, change))

    // A Redis that lives in this process cannot be reached by another.
    const apart = n % (stories / byCommandLine) === 0 && three.operator.config.redis !== null
    const remove = () =>
      apart ? deleteByCommandLine(t, three, people.userId) : removeUser(three.operator, people.userId)
    watched.push(await watchChange(three, 0, deletion(spare.token, remove)))
    made += 5
    watched.push(await lookAgain(three, deletion(people.manager.token, remove)))
  }

  let next = 0
  const lane = async () => {
    while (next < stories) await story(next++)
  }
  await Promise.all(Array.from({ length: storiesAtOnce }, lane))
  t.same(faultsOf(watched), [], 'none acts on the old state')
  const { asked, undecided } = askedInAll(watched)
  t.equal(asked - undecided, stories * 6 * 3, 'each instance was asked after each change')
  recordFigure(t, 'changes', { ...numbersOf(watched), changes: made })
})

t.test('under a flood no request sent after the answer is decided by the old state', async (t) => {
  const rounds = scaled(20, 500)
  const late: string[] = []
  let asked = 0
  for (let round = 0; round < rounds; round++) {
    const people = await makePeople(three.operator)
    const { limit, revocation } = changesOf(people)
    for (const change of [limit(), revocation()]) {
      let answeredMs = Number.POSITIVE_INFINITY
      const flood = Array.from({ length: 9 }, async (_, i) => {
        for (let after = 0; after < 3; ) {
          const sentMs = performance.now()
          const answer = await change.look(three.urls[i % 3]!)
          asked++
          if (sentMs > answeredMs) after++
          const decided = answer.status !== 503
          if (sentMs > answeredMs && decided && change.isOld(answer))
            late.push(`${change.name}: ${answer.status}`)
        }
      })
      await change.look(three.urls[0]!)
      await change.make(three.urls[round % 3]!)
      answeredMs = performance.now()
      await Promise.all(flood)
    }
  }
  t.same(late, [])
  t.ok(asked > rounds * 2 * 9 * 3, 'it was asked before, too')
})

t.test('a limit lowered below what was used refuses the next request on another instance', async (t) => {
  for (;;) {
    const away = three.timesAway()
    const people = await makePeople(three.operator, { rateLimitRpm: 10 })
    const lowered = changesOf(people).limit(2)
    const used = await Promise.all(three.urls.map((url) => lowered.look(url)))
    await lowered.make(three.urls[0]!)
    const next = await lowered.look(three.urls[1]!)
    const resets = [...used, next].map(({ headers }) => headers.get('x-ratelimit-reset'))
    if (new Set(resets).size > 1) continue // the minute ended in between, or an answer was a 503
    if (three.timesAway() > away) continue // one counted by itself
    t.same(
      used.map(({ status }) => status),
      [200, 200, 200],
    )
    t.equal(next.status, 429)
    return
  }
})

t.test('an expiry that is brought near holds on every instance, to the second', async (t) => {
  const wrong: string[] = []
  async function shorten(i: number) {
    const { manager, key } = await makePeople(three.operator)
    await warm(three, key.token)
    const expire = (inS: number) => {
      const json = { expires_at: Math.ceil(Date.now() / 1000) + inS }
      return ask(`PATCH ${three.urls[i % 3]}/v1/keys/${key.id}`, { token: manager.token, json })
    }
    let changed = await expire(1)
    // On a slow machine the moment may have passed before the request came.
    for (let inS = 2; changed.status === 400 && inS < 100; inS *= 2) changed = await expire(inS)
    // Undecided.
    if (changed.status === 503 && !soaking) return
    if (changed.status !== 200) return wrong.push(`answered ${changed.status}`)
    await pause(changed.body.expires_at * 1000 - Date.now())
    for (const url of three.urls) {
      let status = 503
      while (status === 503) status = (await ask(`GET ${url}/v1/verify`, { token: key.token })).status
      if (status !== 401) wrong.push(`answered ${status} after it had expired`)
    }
  }
  await Promise.all(Array.from({ length: scaled(12, 120) }, (_, i) => shorten(i)))
  t.same(wrong, [])
})

t.test('what it has written to Redis goes by itself', (t) => everyCounterExpires(t, three.redis))

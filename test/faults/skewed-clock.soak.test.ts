// Two of three instances have a wrong clock, 90 s fast and 90 s slow. Windows are Redis's minutes and keys expire by the
// database's time, so nothing of it may show.
import t, { type Test } from 'tap'
import { makeCaller } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { type PrivateRedis, startPrivateRedis } from '../services/index.ts'
import { run } from '../services/processes.ts'
import { recordFigure, scaled } from '../soak.ts'
import { expectExact } from './exactness.ts'
import { everyCounterExpires } from './expiring-counters.ts'
import { allowedLateMs, watchExpiry } from './expiry-watch.ts'
import { clockAhead, findFaketime } from './faketime.ts'
import { patiently, type ThreeInstances, threeProcesses } from './three-instances.ts'
import { windowEndS } from './window-tally.ts'

const aheadS = [0, 90, -90] as const

/** Or the tests prove nothing: Node dates each answer by its own clock. */
async function expectSkew(t: Test, { urls }: ThreeInstances) {
  for (const [i, url] of urls.entries()) {
    const { headers } = await ask(`GET ${url}/openapi.json`)
    const differenceS = (Date.parse(headers.get('date')!) - Date.now()) / 1000
    t.ok(Math.abs(differenceS - aheadS[i]!) < 5, `clock ${i} is ${Math.round(differenceS)} s ahead`)
  }
}

const library = await findFaketime(t)
const redis = library === null ? null : await startPrivateRedis(t)
if (library !== null && redis !== null) {
  const [, fast, slow] = aheadS
  const each = [{}, clockAhead(library, fast), clockAhead(library, slow)]
  await tests(library, redis, await threeProcesses(t, redis, { each }))
}

async function tests(library: string, redis: PrivateRedis, three: ThreeInstances) {
  t.test('a process with a wrong clock has timers that go at their own pace', async (t) => {
    const script = `
    const [dateMs, monoMs] = [Date.now(), performance.now()]
    setTimeout(() => console.log(dateMs, Date.now() - dateMs, performance.now() - monoMs), 100)`
    for (const seconds of [90, -90]) {
      const env = { PATH: process.env.PATH, ...clockAhead(library, seconds) }
      const { stdout } = await run(process.execPath, ['-e', script], { env })
      const [dateMs, tookMs, monoTookMs] = stdout.split(' ').map(Number)
      t.ok(Math.abs(dateMs! - Date.now() - seconds * 1000) < 5000, `its clock is ${seconds} s ahead`)
      for (const ms of [tookMs!, monoTookMs!]) t.ok(ms > 95 && ms < 5000, `100 ms take it ${ms} ms`)
    }
  })

  t.test('with clocks 90 s fast and slow, windows, counts and expiry are those of right ones', async (t) => {
    await expectSkew(t, three)
    const { minutes, requests, off } = await expectExact(t, three, {
      floods: [
        { limit: 1, requests: 30, atOnce: 30 },
        { limit: 100, requests: 400, atOnce: 200 },
        { limit: scaled(300, 5000), requests: scaled(400, 5500), atOnce: 100 },
      ],
      wholeMinutes: 2,
      turnWithinMs: 4000,
    })
    const { admitted, refused, wrong, early, lateMs } = await watchExpiry(t, three, scaled(2, 30))
    t.same([...wrong], [], 'nobody is refused before the moment')
    t.ok(lateMs <= allowedLateMs, `nobody is admitted more than 1 s after it (${lateMs} ms)`)
    t.ok(admitted > 20 && refused > 20, 'it was asked often on both sides')
    await everyCounterExpires(t, three.redis)
    recordFigure(t, 'skewed-clock', { minutes, requests, off, early, lateMs })
  })

  t.test('with Redis gone, wrong clocks still keep to the minutes of its clock', async (t) => {
    const { token } = await patiently(() => makeCaller(three.operator))
    const verify = (url: string) => ask(`GET ${url}/v1/verify`, { token })
    // Each has counted in Redis at least once, and knows its clock by that.
    await Promise.all(three.urls.map(verify))
    await redis.kill()
    // At full length beyond the turn of a minute.
    const untilMs = scaled(Date.now() + 300, windowEndS(Date.now()) * 1000 + 1000)
    const wrong: string[] = []
    while (Date.now() < untilMs) {
      const sentMs = Date.now()
      const answers = await Promise.all(three.urls.map(verify))
      const ends = [windowEndS(sentMs), windowEndS(Date.now())]
      const resets = answers.map(({ headers }) => Number(headers.get('x-ratelimit-reset')))
      if (!resets.every((reset) => ends.includes(reset))) wrong.push(`${resets} in the minute until ${ends}`)
    }
    t.same(wrong, [], 'every instance names the end of the present minute')
    t.equal(three.timesAway(), 3, 'all counted by themselves')
    const expiry = await watchExpiry(t, three, scaled(2, 10))
    t.same([...expiry.wrong], [], 'nobody is refused before the moment')
    t.ok(expiry.lateMs <= allowedLateMs, `nobody is admitted more than 1 s after it (${expiry.lateMs} ms)`)
  })
}

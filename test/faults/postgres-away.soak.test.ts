// Postgres killed and frozen under load: keys in use go on, everything else says when to come back, and does come back.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { startLoad, statuses } from '../load.ts'
import { startPrivatePostgres } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { numbersOf, type Outcome, onlyCached, underLoad } from './postgres-fault.ts'
import { answeredMs, busyness, recoveredMs } from './postgres-judge.ts'
import { makeKeys, startWorld } from './postgres-world.ts'

const server = await startPrivatePostgres(t)
const world = await startWorld(t, server.url)

const fates = onlyCached

t.test('Postgres killed under load: keys in use go on, all else is 503 until it is back', async (t) => {
  const outcomes: Outcome[] = []
  for (let round = 0; round < scaled(1, 10); round++) {
    const forMs = scaled(2000, 500 + round * 3000)
    const fault = { away: () => server.kill(), back: () => server.restart(), forMs, fates }
    outcomes.push(await underLoad(t, world, fault))
  }
  recordFigure(t, 'postgres-killed', numbersOf(outcomes))
})

t.test('Postgres frozen under load: nothing hangs, keys in use go on, all else is 503', async (t) => {
  const outcomes: Outcome[] = []
  for (let round = 0; round < scaled(1, 10); round++) {
    const forMs = scaled(2500, 2000 + round * 3000)
    const fault = { away: () => server.freeze(), back: () => server.thaw(), forMs, fates }
    outcomes.push(await underLoad(t, world, fault))
  }
  recordFigure(t, 'postgres-frozen', numbersOf(outcomes))
})

t.test('a key that was not in use just before is answered as soon, and is no less good', async (t) => {
  const { instance, userId } = world
  const keys = await makeKeys(instance, userId, 4)
  for (const { token } of keys) await instance.ask('GET', '/v1/verify', { token })
  // Until its copy has to be read again, which is then tried within each request's own time.
  await pause(instance.config.keyCacheSeconds * 1000 + 100)
  await server.freeze()
  const pages = startLoad(t, {
    ...{ urls: [instance.url], tokens: [''], perSecond: 20 },
    path: '/docs/errors/not_found',
  })
  const asked = keys.map(async ({ token }, i) => {
    const begunMs = performance.now()
    const { status } = await instance.ask('GET', i < 2 ? '/v1/verify' : '/v1/keys', { token })
    return { status, tookMs: performance.now() - begunMs }
  })
  const answers = await Promise.all(asked)
  const busyMs = busyness(await pages.stop())
  await server.thaw()
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200, 503, 503],
  )
  const slowestMs = Math.max(...answers.map(({ tookMs }) => tookMs))
  t.ok(slowestMs <= answeredMs + busyMs, `the slowest after ${Math.round(slowestMs)} ms`)
})

// A minute cannot be had in less than a minute.
if (soaking) {
  t.test('keys in use go on for a minute without Postgres, and then are 503 too', async (t) => {
    const { instance, userId } = world
    const tokens = (await makeKeys(instance, userId, 4)).map(({ token }) => token)
    const load = startLoad(t, { urls: [instance.url], tokens, perSecond: 20 })
    await pause(instance.config.keyCacheSeconds * 1000)
    await server.kill()
    const awayMs = performance.now()
    await pause(70_000)
    const returningMs = performance.now()
    await server.restart()
    const backMs = performance.now()
    await pause(recoveredMs + 300)
    const samples = await load.stop()
    const sentIn = (fromMs: number, toMs: number) =>
      statuses(samples.filter(({ sentMs }) => sentMs >= fromMs && sentMs < toMs))
    // A minute from when it was read, which was within the time that a copy is believed.
    const surelyMs = 60_000 - instance.config.keyCacheSeconds * 1000
    t.strictSame(Object.keys(sentIn(0, awayMs + surelyMs)), ['200'])
    t.strictSame(Object.keys(sentIn(awayMs + 60_500, returningMs - answeredMs)), ['503'])
    t.strictSame(Object.keys(sentIn(backMs + recoveredMs, Infinity)), ['200'])
    t.strictSame(
      samples.filter(({ status, tookMs }) => ![200, 503].includes(status) || tookMs > answeredMs),
      [],
    )
  })
}

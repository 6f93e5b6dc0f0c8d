// Postgres killed and frozen under load: keys in use go on, everything else says when to come back,
// and does come back.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { poolBounds } from '../../src/wiring/pools.ts'
import { startLoad, statuses } from '../load.ts'
import { startPrivatePostgres } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import {
  answeredMs,
  figuresOf,
  type Outcome,
  onlyCached,
  recoveredMs,
  startWorld,
  underLoad,
} from './postgres-fault.ts'

const server = await startPrivatePostgres(t)
const world = await startWorld(t, server.url)
const { instance } = world
const trustedMs = instance.config.keyCacheSeconds * 1000

const rows = [
  ['postgres-killed', 'killed', server.kill, server.restart, 500],
  ['postgres-frozen', 'frozen', server.freeze, server.thaw, 2000],
] as const

for (const [row, what, begin, end, leastMs] of rows) {
  t.test(`Postgres ${what} under load: nothing hangs, keys in use go on, all else is 503`, async (t) => {
    const outcomes: Outcome[] = []
    for (let round = 0; round < scaled(1, 10); round++) {
      const forMs = scaled(2500, leastMs + round * 3000)
      outcomes.push(await underLoad(t, world, { begin: () => begin(), end, forMs, fates: onlyCached }))
    }
    recordFigure(t, row, figuresOf(outcomes))
  })
}

t.test('a key that was not in use just before is no less good, and waits for one look-up more', async (t) => {
  const keys = await world.makeKeys(4)
  for (const { token } of keys) await instance.ask('GET', '/v1/verify', { token })
  // Until its copy has to be read again, which is then tried within each request's own time.
  await pause(trustedMs + 100)
  await server.freeze()
  const pages = startLoad(t, {
    urls: [instance.url],
    tokens: [''],
    perSecond: 20,
    path: '/docs/errors/not_found',
  })
  const answers = await Promise.all(
    keys.map(async ({ token }, i) => {
      const sentMs = performance.now()
      const { status } = await instance.ask('GET', i < 2 ? '/v1/verify' : '/v1/keys', { token })
      return { status, tookMs: performance.now() - sentMs }
    }),
  )
  const busyMs = Math.max(...(await pages.stop()).map(({ tookMs }) => tookMs))
  await server.thaw()
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200, 503, 503],
  )
  for (const { status, tookMs } of answers) {
    const boundMs = answeredMs + (status === 503 ? poolBounds.lookups.timeoutMs : 0)
    t.ok(tookMs <= boundMs + Math.min(busyMs, 1000), `${status} after ${Math.round(tookMs)} ms`)
  }
})

// This takes more than a minute.
if (soaking) {
  t.test('keys in use go on for a minute without Postgres, and then are 503 too', async (t) => {
    const tokens = (await world.makeKeys(4)).map(({ token }) => token)
    const load = startLoad(t, { urls: [instance.url], tokens, perSecond: 20 })
    await pause(trustedMs)
    await server.kill()
    const beganMs = performance.now()
    await pause(70_000)
    const endingMs = performance.now()
    await server.restart()
    const endedMs = performance.now()
    await pause(recoveredMs + 300)
    const samples = await load.stop()
    const sentIn = (fromMs: number, toMs: number) =>
      Object.keys(statuses(samples.filter(({ sentMs }) => sentMs >= fromMs && sentMs < toMs)))
    // A minute from when a copy was read, which was within the time that it is trusted.
    t.strictSame(sentIn(0, beganMs + 60_000 - trustedMs), ['200'])
    t.strictSame(sentIn(beganMs + 60_500, endingMs - answeredMs), ['503'])
    t.strictSame(sentIn(endedMs + recoveredMs, Infinity), ['200'])
    const wrong = samples.filter(({ status, tookMs }) => ![200, 503].includes(status) || tookMs > answeredMs)
    t.strictSame(wrong, [])
  })
}

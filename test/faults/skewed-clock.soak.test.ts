// Two of three instances have a wrong clock, 90 s fast and 90 s slow. Minutes are Redis's and keys
// expire by the database's time, so nothing of it may show. libfaketime (Debian's package
// `faketime`) sets the clock of the day; the monotonic one stays right.
import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { ask } from '../process/ask.ts'
import type { Env } from '../process/latchkey.ts'
import { type PrivateRedis, startPrivateRedis } from '../services/index.ts'
import { run } from '../services/processes.ts'
import { recordFigure, scaled } from '../soak.ts'
import { expectExact, minuteEndS } from './exactness.ts'
import { everyCounterExpires, type Fleet, makeKeys, outages, startFleet, verify } from './fleet.ts'

const aheadS = [0, 90, -90]
/** A key admitted longer than this after it expired is admitted too late. */
const allowedLateMs = 1000
/** An instance knows the clock of Redis as of a reply, which is read at most so much later. */
const replyMsMax = 100

const library = await findFaketime(t)
const redis = library === null ? null : await startPrivateRedis(t)
if (library !== null && redis !== null) {
  const each = aheadS.map((seconds) => clockAhead(library, seconds))
  await tests(library, redis, await startFleet(t, redis.url, { each }))
}

/** Null, with a skipped assertion, where there is none. */
async function findFaketime(t: Test): Promise<string | null> {
  for (const lib of ['/usr/lib', '/usr/lib64']) {
    // Debian has a folder for each architecture.
    const folders = (await readdir(lib).catch(() => [])).map((name) => join(lib, name, 'faketime'))
    // The first one is for processes with several threads, such as Node's.
    for (const folder of [join(lib, 'faketime'), ...folders])
      for (const name of ['libfaketimeMT.so.1', 'libfaketime.so.1'])
        if (existsSync(join(folder, name))) return join(folder, name)
  }
  t.pass('a wrong clock', { skip: 'there is no libfaketime on this machine' })
  return null
}

function clockAhead(library: string, seconds: number): Env {
  if (seconds === 0) return {}
  const FAKETIME = `${seconds < 0 ? '' : '+'}${seconds}s`
  return { LD_PRELOAD: library, FAKETIME, FAKETIME_DONT_FAKE_MONOTONIC: '1' }
}

async function tests(library: string, redis: PrivateRedis, fleet: Fleet) {
  t.test('the instances have wrong clocks, and their timers run at the right pace', async (t) => {
    for (const [i, url] of fleet.urls.entries()) {
      // Node dates each answer by its own clock.
      const { headers } = await ask(`GET ${url}/openapi.json`)
      const differenceS = (Date.parse(headers.get('date')!) - Date.now()) / 1000
      t.ok(Math.abs(differenceS - aheadS[i]!) < 5, `clock ${i} is ${Math.round(differenceS)} s ahead`)
    }
    const script = `
    const [dateMs, monoMs] = [Date.now(), performance.now()]
    setTimeout(() => console.log(Date.now() - dateMs, performance.now() - monoMs), 100)`
    for (const seconds of [90, -90]) {
      const env = { PATH: process.env.PATH, ...clockAhead(library, seconds) }
      const { stdout } = await run(process.execPath, ['-e', script], { env })
      for (const ms of stdout.split(' ').map(Number)) t.ok(ms > 95 && ms < 5000, `100 ms take it ${ms} ms`)
    }
  })

  t.test('with clocks 90 s fast and slow, minutes, counts and expiry are right', async (t) => {
    const { minutes, requests, off } = await expectExact(t, fleet, {
      floods: [
        { limit: 1, requests: 30, atOnce: 30 },
        { limit: 100, requests: 400, atOnce: 200 },
        { limit: scaled(300, 5000), requests: scaled(400, 5500), atOnce: 100 },
      ],
      wholeMinutes: 2,
      turnWithinMs: 4000,
    })
    const { early, lateMs } = await expectExpiry(t, fleet, scaled(2, 30))
    await everyCounterExpires(t, fleet.redis)
    recordFigure(t, 'skewed-clock', { minutes, requests, off, early, lateMs })
  })

  t.test('with Redis down, instances with wrong clocks still use the minutes of its clock', async (t) => {
    const [key] = await makeKeys(fleet, 1)
    const verifyAll = () => Promise.all(fleet.urls.map((url) => verify(url, key!.token)))
    // Each has counted in Redis at least once, and knows its clock by that.
    await verifyAll()
    const before = outages(fleet).length
    await redis.kill()
    // In the soak beyond the turn of a minute.
    const untilMs = scaled(Date.now() + 300, minuteEndS(Date.now()) * 1000 + 1000)
    const wrong: string[] = []
    while (Date.now() < untilMs) {
      const sentMs = Date.now()
      const answers = await verifyAll()
      const ends = [minuteEndS(sentMs - replyMsMax), minuteEndS(Date.now())]
      const resets = answers.map(({ headers }) => Number(headers.get('x-ratelimit-reset')))
      if (!resets.every((reset) => ends.includes(reset))) wrong.push(`${resets} in the minute until ${ends}`)
    }
    t.same(wrong, [], 'every instance names the end of the present minute')
    t.equal(outages(fleet).length - before, 3, 'all counted by themselves')
    await expectExpiry(t, fleet, scaled(2, 10))
  })
}

/**
 * Keys that expire soon, created by each instance with its own idea of the time and used on all,
 * before and after.
 */
async function expectExpiry(t: Test, fleet: Fleet, aheadS: number) {
  const { urls } = fleet
  const [manager] = await makeKeys(fleet, 1)
  const seen = { admitted: 0, refused: 0, early: 0, lateMs: 0 }
  const wrong = new Set<string>()

  const create = (url: string, expires_at: number) =>
    ask(`POST ${url}/v1/keys`, {
      token: manager!.token,
      json: { name: 'expires', expires_at, rate_limit_rpm: 1_000_000 },
    })

  for (const url of urls) {
    const { status, body } = await create(url, Math.floor(Date.now() / 1000) - 1)
    t.same([status, body.error?.param], [400, 'expires_at'], `${url}: 1 s ago is in the past`)
  }
  const expiresAt = Math.ceil(Date.now() / 1000) + aheadS
  const expiryMs = expiresAt * 1000

  async function makeOne(url: string): Promise<string> {
    const { status, body } = await create(url, expiresAt)
    t.equal(status, 201, `${url}: ${aheadS} s ahead is in the future`)
    t.ok(Math.abs(body.created_at - Date.now() / 1000) < 5, 'and the key has the date of the database')
    return body.plain_key
  }

  async function look(url: string, token: string) {
    const sentMs = Date.now()
    const { status, body } = await verify(url, token)
    seen[status === 200 ? 'admitted' : 'refused']++
    const isBefore = Date.now() < expiryMs
    if (isBefore && status !== 200) seen.early++
    if (isBefore && !(status === 200 && body.expires_at === expiresAt))
      wrong.add(`${status} before it expires`)
    if (sentMs >= expiryMs && status === 200) seen.lateMs = Math.max(seen.lateMs, sentMs - expiryMs + 1)
    if (status !== 200 && status !== 401) wrong.add(`${status}`)
  }

  async function inUse(url: string, token: string) {
    while (Date.now() < expiryMs + 1500) {
      await look(url, token)
      await pause(20)
    }
  }

  /** In the cache when it expires, and not used until this long after. */
  async function idle(url: string, token: string, restMs: number) {
    await pause(expiryMs - 700 - Date.now())
    await look(url, token)
    await pause(expiryMs + restMs - Date.now())
    await look(url, token)
  }

  const makeEach = () => Promise.all(urls.map(makeOne))
  const [used, unused, forgotten] = await Promise.all([makeEach(), makeEach(), makeEach()])
  await Promise.all(
    urls.flatMap((url) => [
      ...used.map((token) => inUse(url, token)),
      ...unused.map((token) => idle(url, token, 0)),
      ...forgotten.map((token) => idle(url, token, allowedLateMs + 10)),
    ]),
  )
  t.same([...wrong], [], 'no key is refused before it expires')
  t.ok(seen.lateMs <= allowedLateMs, `none is admitted more than 1 s after (${seen.lateMs} ms)`)
  t.ok(seen.admitted > 20 && seen.refused > 20, 'it was asked often on both sides')
  return seen
}

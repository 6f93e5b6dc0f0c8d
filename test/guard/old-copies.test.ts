// How long an instance may go on with cached keys while Postgres is down: from its fence, and until
// its last report is too old for the others to wait for it.
import { install } from '@sinonjs/fake-timers'
import t from 'tap'
import { createOldCopies, type OldCopies } from '../../src/guard/old-copies.ts'

const clock = install({ toFake: ['performance'] })
t.teardown(() => clock.uninstall())
const nowMs = () => performance.now()
const none = { fromMs: Infinity, untilMs: 0 }

/** Reports; Postgres answers after `tookMs` with this fence. Resolves to the fence that was sent. */
async function report(copies: OldCopies, latest: number, tookMs = 0): Promise<number> {
  let sent = NaN
  await copies.report(async (fence) => {
    sent = fence
    clock.tick(tookMs)
    return latest
  })
  return sent
}

/** An instance that has learned fence 5 and sent it back, just now. */
async function open(outageTtlMs = 60_000) {
  const copies = createOldCopies(outageTtlMs)
  await report(copies, 5)
  clock.tick(1000)
  await report(copies, 5)
  return { copies, startedMs: nowMs() }
}

t.test('no copy is used before a fence was learned and sent back', async (t) => {
  const copies = createOldCopies(60_000)
  t.match([copies.allowed, copies.isBehind()], [none, false])
  t.equal(await report(copies, 5), 0)
  t.match([copies.allowed, copies.isBehind()], [none, true])
  clock.tick(1000)
  const sentMs = nowMs()
  t.equal(await report(copies, 5, 30), 5)
  t.match([copies.allowed, copies.isBehind()], [{ fromMs: sentMs, untilMs: sentMs + 60_000 }, false])
})

t.test('each report extends the time to go on, from when it was sent', async (t) => {
  const { copies, startedMs } = await open()
  clock.tick(1000)
  await report(copies, 5, 400)
  t.strictSame(copies.allowed, { fromMs: startedMs, untilMs: startedMs + 61_000 })
})

t.test('an instance whose clock has stood still starts over, whatever report is under way', async (t) => {
  const { copies } = await open()
  await copies.report(async () => {
    copies.startOver()
    return 5
  })
  t.match([copies.allowed.untilMs, copies.isBehind()], [0, true])
  clock.tick(1000)
  const sentMs = nowMs()
  t.equal(await report(copies, 5), 5)
  t.strictSame(copies.allowed, { fromMs: sentMs, untilMs: sentMs + 60_000 })
})

t.test('copies read before a new fence was first sent are out, even if no reply comes', async (t) => {
  const { copies, startedMs } = await open()
  await report(copies, 6)
  t.match([copies.allowed, copies.isBehind()], [{ fromMs: startedMs }, true])
  clock.tick(1000)
  await t.rejects(copies.report(() => Promise.reject(new Error('down'))))
  t.strictSame(copies.allowed, { fromMs: startedMs + 1000, untilMs: startedMs + 60_000 })
  clock.tick(1000)
  t.equal(await report(copies, 6), 6)
  t.equal(copies.allowed.fromMs, startedMs + 1000, 'it was first sent then')
})

t.test('after too long a silence it starts over, and learns a fence first', async (t) => {
  const { copies, startedMs } = await open()
  clock.tick(59_999)
  t.equal(await report(copies, 5), 5, 'just in time')
  clock.tick(60_000)
  await t.rejects(copies.report(() => Promise.reject(new Error('down'))))
  t.equal(copies.allowed.untilMs, 0)
  t.equal(await report(copies, 7), 0)
  t.match([copies.allowed, copies.isBehind()], [{ fromMs: startedMs, untilMs: 0 }, true])
  clock.tick(1000)
  const sentMs = nowMs()
  t.equal(await report(copies, 7), 7)
  t.strictSame(copies.allowed, { fromMs: sentMs, untilMs: sentMs + 60_000 })
})

t.test('a reply that comes too late is a silence too', async (t) => {
  const { copies } = await open()
  t.equal(await report(copies, 5, 60_000), 5)
  t.match([copies.allowed.untilMs, copies.isBehind()], [0, true])
  t.equal(await report(copies, 5), 0)
  t.equal(copies.allowed.untilMs, 0)
  clock.tick(1000)
  const sentMs = nowMs()
  t.equal(await report(copies, 5), 5)
  t.strictSame(copies.allowed, { fromMs: sentMs, untilMs: sentMs + 60_000 })
})

t.test('without any time to go on, there is no silence', async (t) => {
  const { copies, startedMs } = await open(0)
  clock.tick(3_600_000)
  t.equal(await report(copies, 5), 5)
  t.match([copies.allowed, copies.isBehind()], [{ fromMs: startedMs, untilMs: nowMs() }, false])
})

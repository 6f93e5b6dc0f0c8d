// The refusals of the last hour: each half minute is read until they cannot grow any more, and then no more.
import t, { type Test } from 'tap'
import { auditReasons } from '../../schemas/bounds.ts'
import { createRefusalHour } from '../../src/ops/refusal-hour.ts'

const startS = Date.parse('2026-01-01T12:00:00Z') / 1000
/** One refusal a second for each reason; each question takes so long. */
function hour(t: Test, { tookMs = 0 } = {}) {
  const clock = { ms: startS * 1000 }
  const asked: string[] = []
  let isDown = (_since: string) => false
  const countRefusals = async (_by: unknown, { since = 0, until = 0, limit = 0 }) => {
    if (limit < auditReasons.length) throw new Error('rare reasons are left out')
    const nowS = clock.ms / 1000
    const from = new Date(since * 1000).toISOString().slice(11, 19)
    asked.push(from)
    if (isDown(from)) throw new Error('down')
    clock.ms += tookMs
    const refusals = Math.max(0, Math.min(until, nowS) - since)
    return [
      { value: 'revoked', refusals },
      { value: 'wrong_token', refusals: 5 },
    ]
  }
  // Only for durations: the clock of the instance has nothing to do with that of Postgres.
  t.intercept(performance, 'now', { value: () => clock.ms - startS * 1000 })
  const read = createRefusalHour({ countRefusals, now: async () => clock.ms })
  return {
    clock,
    read,
    askedSince: () => asked.splice(0),
    down: (...since: string[]) => {
      isDown = (from) => since.includes(from)
    },
  }
}

t.test('at first the hour is read, then only what may still grow', async (t) => {
  const { clock, read, askedSince } = hour(t)
  clock.ms += 10_000
  const all = { since: startS - 3570, reasons: { revoked: 3580 } }
  t.strictSame(await read(), all, 'of callers only')
  t.equal(askedSince().length, 120)
  clock.ms += 10_000
  t.match(await read(), { reasons: { revoked: 3590 } })
  t.strictSame(askedSince(), ['12:00:00'])
  clock.ms += 19_000
  t.match(await read(), { since: startS - 3540 })
  t.strictSame(askedSince(), ['12:00:30', '12:00:00'], 'an entry may come late')
  clock.ms += 1000
  await read()
  t.strictSame(askedSince(), ['12:00:30', '12:00:00'])
  clock.ms += 1000
  await read()
  t.strictSame(askedSince(), ['12:00:30'])
})

t.test('a slow server is asked for a little at a time, and left alone in between', async (t) => {
  const { clock, read, askedSince } = hour(t, { tookMs: 200 })
  clock.ms += 10_000
  t.match(await read(), { since: startS - 30 })
  t.strictSame(askedSince(), ['12:00:00', '11:59:30'])
  t.match(await read(), { since: startS - 30 })
  clock.ms += 1599
  await read()
  t.strictSame(askedSince(), [], 'it rests four times as long')
  clock.ms += 1
  t.match(await read(), { since: startS - 60 })
})

t.test('what cannot be read is left out, with all before it, and tried again', async (t) => {
  const { clock, read, askedSince, down } = hour(t)
  down('11:58:00')
  t.match(await read(), { since: startS - 90, reasons: { revoked: 90 } })
  t.equal(askedSince().length, 5, 'nor is anything before it asked for')
  clock.ms += 1000
  t.match(await read(), { since: startS - 90, reasons: { revoked: 91 } })
  t.strictSame(askedSince(), ['12:00:00', '11:59:30', '11:58:00'])
  down()
  t.match(await read(), { since: startS - 3570 })
})

t.test('while the newest cannot be read it rejects, and it goes on afterwards', async (t) => {
  const { clock, read, down } = hour(t)
  await read()
  down('12:00:00')
  clock.ms += 10_000
  await t.rejects(read())
  down()
  clock.ms += 20_000
  t.match(await read(), { since: startS - 3540, reasons: { revoked: 3570 } })
})

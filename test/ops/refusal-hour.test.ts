// The refusals of the last hour: each five minutes are read until they cannot grow any more, and then no more.
import t from 'tap'
import { createRefusalHour } from '../../src/ops/refusal-hour.ts'

const startS = Date.parse('2026-01-01T12:00:00Z') / 1000
const minute = 60_000

/** One refusal a second for each reason; each question takes so long. */
function hour({ tookMs = 0 } = {}) {
  const clock = { ms: startS * 1000 }
  const asked: string[] = []
  let isDown = false
  const countRefusals = async (_by: unknown, { since = 0, until = 0 }) => {
    if (isDown) throw new Error('down')
    const nowS = clock.ms / 1000
    asked.push(new Date(since * 1000).toISOString().slice(11, 16))
    clock.ms += tookMs
    const refusals = Math.max(0, Math.min(until, nowS) - since)
    return [
      { value: 'revoked', refusals },
      { value: 'wrong_token', refusals: 5 },
    ]
  }
  const read = createRefusalHour({ countRefusals }, () => clock.ms)
  return {
    clock,
    read,
    askedSince: () => asked.splice(0),
    down: (down: boolean) => {
      isDown = down
    },
  }
}

t.test('at first the hour is read, then only what may still grow', async (t) => {
  const { clock, read, askedSince } = hour()
  clock.ms += 2 * minute
  t.strictSame(await read(), { since: startS - 55 * 60, reasons: { revoked: 57 * 60 } }, 'of callers only')
  t.equal(askedSince().length, 12)
  clock.ms += minute
  t.match(await read(), { reasons: { revoked: 58 * 60 } })
  t.strictSame(askedSince(), ['12:00'])
  clock.ms += 2 * minute + 9000
  t.match(await read(), { since: startS - 50 * 60 })
  t.strictSame(askedSince(), ['12:05', '12:00'], 'an entry may come late')
  clock.ms += 1000
  await read()
  t.strictSame(askedSince(), ['12:05', '12:00'])
  clock.ms += 1000
  await read()
  t.strictSame(askedSince(), ['12:05'])
})

t.test('a slow server is asked for a little at a time, and left alone in between', async (t) => {
  const { clock, read, askedSince } = hour({ tookMs: 200 })
  clock.ms += minute
  t.match(await read(), { since: startS - 5 * 60 })
  t.strictSame(askedSince(), ['12:00', '11:55'])
  t.match(await read(), { since: startS - 5 * 60 })
  t.strictSame(askedSince(), [], 'it rests four times as long')
  clock.ms += 1600
  t.match(await read(), { since: startS - 10 * 60 })
})

t.test('while nothing can be read it rejects, and it goes on afterwards', async (t) => {
  const { clock, read, down } = hour()
  await read()
  down(true)
  clock.ms += minute
  await t.rejects(read())
  down(false)
  clock.ms += 4 * minute
  t.match(await read(), { since: startS - 50 * 60, reasons: { revoked: 55 * 60 } })
})

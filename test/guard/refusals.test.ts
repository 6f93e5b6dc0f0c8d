// How refusals are written, and how many of one address. The test is the audit log.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { RefusalBudgetSpent } from '../../src/guard/refusal-budget.ts'
import { createRefusals } from '../../src/guard/refusals.ts'
import { type RefusalRecord, Unavailable } from '../../src/stores.ts'

const refusalFrom = (ip: string): RefusalRecord => ({
  requestId: 'req_1',
  reason: 'unknown_key',
  keyId: null,
  userId: null,
  method: 'GET',
  path: '/',
  ip,
  userAgent: null,
  details: null,
})

/** An audit log whose commits the test ends itself, half a second before a minute ends. */
function open(t: Test, { perAddressRpm = 2 } = {}) {
  const clock = { nowMs: 5000 }
  t.intercept(performance, 'now', { value: () => clock.nowMs })
  t.intercept(Date, 'now', { value: () => 59_500 })
  const commits: { size: number; end(error?: Error): void }[] = []
  const seen: (string | number)[] = []
  const refusals = createRefusals({
    audit: {
      recordRefusals: (batch) =>
        new Promise((resolve, reject) => {
          commits.push({ size: batch.length, end: (error) => (error ? reject(error) : resolve()) })
        }),
    },
    perAddressRpm,
    timeoutMs: 60_000,
    onBatch: (size) => seen.push(`batch of ${size}`),
    onShed: () => seen.push('shed'),
    onCommit: (seconds) => seen.push(seconds),
    onOverBudget: () => seen.push('over budget'),
  })
  return { refusals, clock, commits, seen }
}

t.test('a refusal is recorded when its batch is committed', async (t) => {
  const { refusals, clock, commits, seen } = open(t, { perAddressRpm: 2500 })
  let recorded = 0
  const all = Array.from({ length: 2500 }, () => refusals.record(refusalFrom('10.0.0.1')))
  const settled = Promise.all(all.map((one) => one.then(() => recorded++)))
  await nextTurn()
  t.strictSame(
    commits.map(({ size }) => size),
    [1000, 1000],
    'two at once, of 1,000 at most',
  )
  clock.nowMs += 250
  commits[0]!.end()
  await nextTurn()
  t.equal(recorded, 1000)
  await nextTurn()
  clock.nowMs += 250
  for (const { end } of commits.slice(1)) end()
  await Promise.all([settled, refusals.drained()])
  t.strictSame(seen, ['batch of 1000', 'batch of 1000', 0.25, 'batch of 500', 0.5, 0.25])
})

t.test('a refusal that cannot be committed rejects, and so does one too many from an address', async (t) => {
  const { refusals, clock, commits, seen } = open(t)
  const lost = t.rejects(refusals.record(refusalFrom('10.0.0.1')), new Unavailable('gone'))
  await nextTurn()
  clock.nowMs += 300
  commits[0]!.end(new Unavailable('gone'))
  await lost
  refusals.record(refusalFrom('10.0.0.1')).catch(() => {})
  await t.rejects(refusals.record(refusalFrom('10.0.0.1')), {
    code: 'service_unavailable',
    headers: { 'retry-after': '1' },
    cause: new RefusalBudgetSpent('too many refusals from 10.0.0.1'),
  })
  t.strictSame(seen, ['batch of 1', 0.3, 'over budget'], 'a failure took its time, too')
  const other = refusals.record(refusalFrom('10.0.0.2'))
  await nextTurn()
  commits[1]!.end()
  await other
})

t.test('beyond 10,000 that wait, refusals are shed', async (t) => {
  const { refusals, seen } = open(t)
  for (let n = 0; n < 10_000; n++) refusals.record(refusalFrom(`10.0.${n % 100}.${n / 100}`)).catch(() => {})
  t.strictSame(seen, [])
  await t.rejects(refusals.record(refusalFrom('10.1.0.1')), { message: 'too many requests are waiting' })
  t.strictSame(seen, ['shed'])
})

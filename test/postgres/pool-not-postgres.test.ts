// A pool whose port has something else behind it than Postgres: Unavailable in time, without a storm of connections.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { createPool } from '../../src/postgres/pool.ts'
import { Unavailable } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres } from '../services/index.ts'
import { type Habit, startOddPort } from '../services/odd-ports.ts'

const server = await startPrivatePostgres(t)
const max = 2
const timeoutMs = 500

const cases: [habit: Habit, why: RegExp][] = [
  ['speaks HTTP', /not Postgres/],
  ['speaks first, as MySQL does', /not Postgres/],
  ['accepts and closes', /closed the connection|ECONNRESET/],
  ['accepts and says nothing', /no answer in 500 ms/],
]
for (const [habit, why] of cases) {
  t.test(`a port that ${habit} is Unavailable, and Postgres is used once it is there`, async (t) => {
    const port = await startOddPort(t, habit)
    const pool = createPool({ url: port.url, purpose: 'odd', max, timeoutMs })
    t.teardown(() => pool.close())
    const ask = () => pool.run(async (sql) => (await sql`select 1 as one`)[0]!.one as number)
    const failure = () =>
      ask().then(
        () => null,
        (error) => error,
      )

    const startMs = performance.now()
    for (let i = 0; i < 20; i++) {
      const errors = await Promise.all([failure(), failure(), failure()])
      for (const error of errors) if (!(error instanceof Unavailable)) t.fail(`not Unavailable: ${error}`)
      if (i === 0) t.match(errors[0].message, why)
      if (performance.now() - startMs > 1500) break
      await pause(20)
    }
    const tookMs = performance.now() - startMs
    // One try in 200 ms for each connection; a pool that is replaced tries at once.
    const most = max * (2 + tookMs / 100)
    t.ok(port.accepted <= most, `${port.accepted} connections in ${Math.round(tookMs)} ms`)

    port.leadTo(server.port)
    await until('queries are answered', async () => (await ask().catch(() => 0)) === 1)
  })
}

t.test('of several hosts the first that answers is used, and while none does there are pauses', async (t) => {
  const [dead, other] = [
    await startOddPort(t, 'accepts and closes'),
    await startOddPort(t, 'accepts and closes'),
  ]
  const ports = [dead, other].map(({ url }) => new URL(url).port).join()
  const url = `postgres://postgres@several/postgres?host=127.0.0.1,127.0.0.1&port=${ports}`
  const pool = createPool({ url, purpose: 'odd', max, timeoutMs })
  t.teardown(() => pool.close())
  const ask = () => pool.run(async (sql) => (await sql`select 1 as one`)[0]!.one as number)
  const startMs = performance.now()
  for (let i = 0; i < 3; i++) await t.rejects(ask(), { message: /^Postgres \(odd\): / })
  const tookMs = performance.now() - startMs
  const accepted = dead.accepted + other.accepted
  t.ok(accepted <= 2 * max * (2 + tookMs / 100), `${accepted} connections in ${Math.round(tookMs)} ms`)
  other.leadTo(server.port)
  await until('queries are answered', async () => (await ask().catch(() => 0)) === 1)
})

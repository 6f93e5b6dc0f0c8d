// Connections that end under the work that uses them: the work is Unavailable, and nothing else comes of it.
import { setTimeout as pause } from 'node:timers/promises'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { createPool, type Pool } from '../../src/postgres/pool.ts'
import { Unavailable } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres } from '../services/index.ts'
import { connect } from './open-stores.ts'

const server = await startPrivatePostgres(t)

function open(t: Test, purpose: string, max: number, timeoutMs: number): Pool {
  const pool = createPool({ url: server.url, purpose, max, timeoutMs })
  t.teardown(() => pool.close())
  return pool
}

const ask = (pool: Pool) => pool.run(async (sql) => (await sql`select 1 as one`)[0]!.one as number)
const answers = (pool: Pool) => async () => (await ask(pool).catch(() => 0)) === 1

/** Ends the connections of a pool at the server's side, as an operator or a pooler between does. */
async function ending(t: Test, purpose: string) {
  const sql = postgres(server.url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return async () => {
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name like ${`%${purpose}`} and pid <> pg_backend_pid()`
  }
}

const outcome = (work: Promise<unknown>) =>
  work.then(
    () => null,
    (error: unknown) => error,
  )

t.test('a statement whose connection ends is Unavailable', async (t) => {
  const end = await ending(t, 'middle')
  const pool = open(t, 'middle', 1, 20_000)
  const statement = outcome(pool.run((sql) => sql`select pg_sleep(10)`))
  const look = connect(t, server.url)
  await until('it is under way', async () => {
    const [row] = await look`select from pg_stat_activity where wait_event = 'PgSleep'`
    return row !== undefined
  })
  await end()
  t.ok((await statement) instanceof Unavailable)
  await until('the pool goes on', answers(pool))
})

for (const [max, timeoutMs] of [
  [2, 1000],
  [1, 5000],
] as const) {
  t.test(
    `a pool of ${max} that waits ${timeoutMs} ms goes on however often its connections end`,
    async (t) => {
      const purpose = `often ${max}`
      const end = await ending(t, purpose)
      const pool = open(t, purpose, max, timeoutMs)
      for (let round = 0; round < 6; round++) {
        const works = Array.from({ length: 12 }, (_, n) =>
          outcome(n % 3 ? ask(pool) : pool.run((sql) => sql`select pg_sleep(0.005)`)),
        )
        await pause(round % 5)
        await end()
        const errors = (await Promise.all(works)).filter((error) => error !== null)
        if (!errors.every((error) => error instanceof Unavailable)) t.fail(`not Unavailable: ${errors}`)
        await until('it is there again', answers(pool))
      }
      t.pass('it was there again each time')
    },
  )
}

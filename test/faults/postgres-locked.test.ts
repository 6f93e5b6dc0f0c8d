// A table locked as a careless migration or a VACUUM FULL locks it: what needs that table is 503 in time, the rest goes on.
import t from 'tap'
import type { Row } from '../figures.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { everything, numbersOf, type Outcome, onlyCached, underLoad } from './postgres-fault.ts'
import type { Fate } from './postgres-judge.ts'
import { connectTo, type Kind, startWorld } from './postgres-world.ts'

const server = await startPrivatePostgres(t)
const world = await startWorld(t, server.url)

/** Holds the lock until told; nobody else gets as much as a look at the table. */
async function lockTable(sql: ReturnType<typeof connectTo>, table: string): Promise<() => void> {
  return new Promise((resolve, reject) => {
    sql
      .begin(async (tx) => {
        await tx`lock table ${tx(table)} in access exclusive mode`
        await new Promise<void>((release) => resolve(release))
      })
      .catch(reject)
  })
}

type LockedRow = Extract<Row, `postgres-locked-${string}`>

const tables: [LockedRow, string, Record<Kind, Fate>][] = [
  ['postgres-locked-api_keys', 'api_keys', onlyCached],
  // A list needs no user, but a connection, and those are held up by what does.
  ['postgres-locked-users', 'users', { ...onlyCached, listing: 'falters' }],
  // No refusal goes unrecorded. A change that changes nothing writes no entry, and may or may not have to look.
  ['postgres-locked-audit_log', 'audit_log', { ...everything, unknown: 'stops', writing: 'falters' }],
]

for (const [row, table, fates] of tables) {
  t.test(`${table} locked under load: what needs it is 503 until it is free, the rest goes on`, async (t) => {
    const sql = connectTo(t, server.url)
    const outcomes: Outcome[] = []
    for (let round = 0; round < scaled(1, 5); round++) {
      let unlock = () => {}
      outcomes.push(
        await underLoad(t, world, {
          async away() {
            unlock = await lockTable(sql, table)
          },
          back: async () => unlock(),
          // Longer than copies are believed, by more than a request has time.
          forMs: scaled(2500, 2000 + round * 10_000),
          attempts: scaled(4, 1),
          fates,
        }),
      )
    }
    recordFigure(t, row, numbersOf(outcomes))
  })
}

t.test('refusals that wait for a locked audit log take no connection from looking keys up', async (t) => {
  const sql = connectTo(t, server.url)
  const unlock = await lockTable(connectTo(t, server.url), 'audit_log')
  const refused = Array.from({ length: 10 }, () => world.instance.ask('GET', '/v1/verify'))
  const waiting = await until('refusals wait', async () => {
    const held = await sql`
      select distinct application_name as name from pg_stat_activity where wait_event_type = 'Lock'`
    return held.length > 0 && held.map(({ name }) => name)
  })
  t.strictSame(waiting, ['latchkey audit'])
  unlock()
  await Promise.all(refused)
})

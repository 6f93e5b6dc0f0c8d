// A table locked as a careless migration or a VACUUM FULL locks it: what needs that table is 503 in time, the rest goes on.
import t from 'tap'
import { startPrivatePostgres } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { everything, inWords, type Outcome, onlyCached, underLoad } from './postgres-fault.ts'
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

const tables: Record<string, Record<Kind, Fate>> = {
  api_keys: onlyCached,
  // A list needs no user, but a connection, and those are held up by what does.
  users: { ...onlyCached, listing: 'falters' },
  // No refusal goes unrecorded. A change that changes nothing writes no entry, and may or may not have to look.
  audit_log: { ...everything, unknown: 'stops', writing: 'falters' },
}

for (const [table, fates] of Object.entries(tables)) {
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
          forMs: scaled(2000, 2000 + round * 10_000),
          fates,
        }),
      )
    }
    t.comment(inWords(outcomes))
    recordFigure(`postgres-locked-${table}`, inWords(outcomes))
  })
}

// A table locked as a careless migration or a VACUUM FULL locks it: what needs it is 503 in time,
// the rest goes on.
import t, { type Test } from 'tap'
import type { Row } from '../figures.ts'
import { openDatabase, startPrivatePostgres } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import {
  everything,
  type Fates,
  figuresOf,
  holdLock,
  type Outcome,
  onlyCached,
  startWorld,
  underLoad,
} from './postgres-fault.ts'

const server = await startPrivatePostgres(t)
const world = await startWorld(t, server.url)

/** Nobody else gets as much as a look at the table. */
const lockTable = (t: Test, table: string) =>
  holdLock(openDatabase(t, server.url), (tx) => tx`lock table ${tx(table)} in access exclusive mode`)

const tables: [Extract<Row, `postgres-locked-${string}`>, string, Fates][] = [
  ['postgres-locked-api_keys', 'api_keys', onlyCached],
  // A list needs no user, but a connection, and requests that need the table hold those up.
  ['postgres-locked-users', 'users', { ...onlyCached, listing: 'falters' }],
  // No refusal goes unrecorded. A change that changes nothing writes no entry, and may or may not
  // have to look.
  ['postgres-locked-audit_log', 'audit_log', { ...everything, unknown: 'stops', writing: 'falters' }],
]

for (const [row, table, fates] of tables) {
  t.test(`${table} locked under load: what needs it is 503 until it is free, the rest goes on`, async (t) => {
    const outcomes: Outcome[] = []
    for (let round = 0; round < scaled(1, 5); round++) {
      let unlock = () => {}
      const begin = async () => {
        unlock = await lockTable(t, table)
      }
      // Longer than a copy is trusted, by more than a request may take.
      const forMs = scaled(2500, 2000 + round * 10_000)
      const fault = { begin, end: async () => unlock(), forMs, fates, attempts: scaled(4, 1) }
      outcomes.push(await underLoad(t, world, fault))
    }
    recordFigure(t, row, figuresOf(outcomes))
  })
}

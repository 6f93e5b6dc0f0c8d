/**
 * What is not the hot path: the operations on keys and the audit log, keys used for the first time,
 * and how long the program takes to start.
 */
import { poolBounds } from '../../src/wiring/pools.ts'
import { pgbenchVersion } from '../load/pgbench.ts'
import { besidePgbench } from '../operations/beside-pgbench.ts'
import { firstLookUps } from '../operations/first-look-ups.ts'
import { keysPerUser } from '../operations/kinds.ts'
import { startTimes } from '../operations/start-times.ts'
import type { Outcome } from '../outcome.ts'
import type { Rig } from '../rig.ts'

const keys = 400_000

export async function operations(rig: Rig): Promise<Outcome | null> {
  const pgbench = pgbenchVersion()
  if (pgbench === null) {
    rig.say('operations: skipped, pgbench is not on PATH; it comes with Postgres')
    return null
  }
  // First, while Postgres has nothing else to do.
  const starts = await startTimes(
    rig,
    await rig.database('start', keysPerUser, { numbered: { keysPerUser } }),
  )
  const database = await rig.database('operations', keys, { numbered: { keysPerUser } })
  const cold = await firstLookUps(rig, database)
  const table = await besidePgbench(rig, database)
  return {
    name: 'operations',
    title: 'What is not the hot path',
    tables: [table, cold.table],
    targets: [...cold.targets, ...starts.targets],
    notes: [
      `pgbench ${pgbench}, with prepared statements and one thread. The statements are recorded from the code of the service.`,
      `The service uses at most ${poolBounds.management.max} connections to Postgres for the operations, and at most half of them for one user or operator. It also authenticates and counts each request, writes last uses, and sends each change to Redis before it answers.`,
      ...starts.notes,
    ],
  }
}

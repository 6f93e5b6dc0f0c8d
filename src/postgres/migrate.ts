/**
 * Brings the database to the present schema: the files of sql/postgres, in order, each once. All in one transaction
 * under a lock, so instances may start together and a failed one leaves nothing half-made.
 */
import { dirname } from 'node:path'

import { fileURLToPath } from 'node:url'
import Postgrator from 'postgrator'
import postgres from 'postgres'
import { ensurePartitions } from './partitions.ts'

/** Any number that nobody else locks in this database. */
const migrationLock = 7_231_906

export interface Migration {
  version: number
  name: string
}

/** Resolves to what was applied. Rejects if the server is away or the files were changed after they were applied. */
export async function migrate(url: string): Promise<Migration[]> {
  const sql = postgres(url, {
    max: 1,
    fetch_types: false,
    connect_timeout: 5,
    onnotice: () => {},
    connection: { application_name: 'latchkey migrate' },
  })
  try {
    return await sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(${migrationLock})`
      const first = fileURLToPath(import.meta.resolve('#sql/postgres/001.do.users-and-keys.sql'))
      const postgrator = new Postgrator({
        migrationPattern: `${dirname(first)}/*.sql`,
        driver: 'pg',
        schemaTable: 'schema_version',
        execQuery: async (query) => ({ rows: [...(await tx.unsafe(query))] }),
        execSqlScript: async (script) => {
          await tx.unsafe(script)
        },
      })
      const applied = await postgrator.migrate()
      await ensurePartitions(tx)
      return applied.map(({ version, name }) => ({ version, name }))
    })
  } finally {
    await sql.end({ timeout: 1 })
  }
}

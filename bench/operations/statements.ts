/**
 * What the service's stores send to Postgres, as a script for pgbench: the statement is recorded
 * from a real call, so it cannot differ from the service's own.
 */
import postgres from 'postgres'
import { createAuditLog } from '../../src/postgres/audit.ts'
import { createKeyStore } from '../../src/postgres/keys.ts'
import type { Pool } from '../../src/postgres/pool.ts'

export interface Statement {
  text: string
  parameters: unknown[]
}

export const sampleAuditId = `aud_${'x'.repeat(26)}`

/** The default of MAX_KEYS_PER_USER. */
const keysPerUserMax = 10_000

export type RecordedStores = ReturnType<typeof storesOn>

export const storesOn = (pool: Pool) => ({
  keys: createKeyStore(
    { lookups: pool, management: pool, background: pool, operator: pool },
    { keysPerUserMax, publish: async () => {} },
  ),
  audit: createAuditLog({ audit: pool, management: pool }),
})

/** One connection, without a time limit. */
export const poolOn = (sql: postgres.Sql): Pool => ({
  run: (work) => work(sql, () => {}),
  change: (work) => work(sql, () => {}),
  close: () => sql.end(),
})

/** The statements of these calls, which send one each. They run, too. */
export async function recordStatements(
  databaseUrl: string,
  calls: ((stores: RecordedStores) => Promise<unknown>)[],
): Promise<Statement[]> {
  const sent: Statement[] = []
  const sql = postgres(databaseUrl, {
    max: 1,
    fetch_types: false,
    debug: (_connection, text, parameters) => sent.push({ text, parameters: parameters.map(withSampleId) }),
  })
  const stores = storesOn(poolOn(sql))
  try {
    for (const call of calls) await call(stores)
  } finally {
    await sql.end()
  }
  if (sent.length !== calls.length) throw new Error(`${calls.length} calls sent ${sent.length} statements`)
  return sent
}

/** Each call makes an id for its audit entry. */
const withSampleId = (value: unknown) =>
  typeof value === 'string' ? value.replace(/aud_[0-9a-z]{26}/, sampleAuditId) : value

/**
 * The statement in pgbench's language, with the parameters as they were recorded, except for the
 * texts in `expressions`.
 */
export function pgbenchStatement({ text, parameters }: Statement, expressions: Map<string, string>): string {
  const escaped = text.replace(/(?<!:):(?=[A-Za-z])/g, "' || ':' || '")
  const parts = new RegExp(`(${[...expressions.keys()].join('|')})`)
  return `${escaped.replace(/\$(\d+)/g, (_, n) => {
    const value = parameters[Number(n) - 1]
    if (value === null) return 'null'
    const split = String(value).split(parts).filter(Boolean)
    return `(${split.map((part) => expressions.get(part) ?? quoted(part)).join(' || ')})`
  })};\n`
}

/** pgbench takes a colon and a name for one of its variables, even inside a text. */
const quoted = (text: string) =>
  `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'").replaceAll(':', '\\x3a')}'`

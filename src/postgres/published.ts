/** Changes that are answered once every instance sees them. */
import type { KeyVersion, Publish } from '../stores.ts'
import type { Pool, Query } from './pool.ts'

/**
 * Runs a change and waits until it is published. The work itself reports the committed versions, so
 * that a change committed after its request timed out is published too. The connection is free
 * during that wait.
 */
export async function runPublished<T>(
  { pool, lane, publish }: { pool: Pool; lane: string | null; publish: Publish },
  work: (sql: Query, committed: (versions: KeyVersion[]) => void) => Promise<T>,
): Promise<T> {
  let published: Promise<void> | undefined
  const committed = (versions: KeyVersion[]) => {
    if (versions.length === 0) return
    published = publish(versions)
    // If the request has timed out, nobody awaits it.
    published.catch(() => {})
  }
  const answer = await pool.change((sql) => work(sql, committed), lane ?? undefined)
  await published
  return answer
}

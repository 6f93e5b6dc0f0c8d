/** What an error of Postgres or of its connection says: whose fault it is, and in which words. */

/** SQLSTATE read_only_sql_transaction. */
export const readOnlyFault = '25006'

/**
 * SQLSTATE classes that blame our statement: cardinality, data, constraint, syntax. Any other
 * describes the state of the server.
 */
const ourFaultClasses = ['21', '22', '23', '42']

/**
 * Error codes of postgres.js, sockets and TLS. Others (ERR_…, UNDEFINED_VALUE) are faults in our
 * code.
 */
const connectionFault = /^(CONNECT|E[A-Z]+$|ERR_SSL_)/

/** No partition takes the row: 23514 (check_violation) without the name of a constraint. */
export function lacksPartition(error: unknown): boolean {
  const { code, constraint_name } = error as { code?: unknown; constraint_name?: string }
  return code === '23514' && !constraint_name
}

/**
 * Whether the server is down, starting, stopping, full, read-only, refusing us or timing out: all
 * of these mean "not now".
 */
export function isServersFault(error: unknown): boolean {
  const code = (error as { code?: unknown }).code
  if (typeof code !== 'string') return false
  // The partitions could not be created ahead of time.
  if (lacksPartition(error)) return true
  if (/^[0-9A-Z]{5}$/.test(code)) return !ourFaultClasses.includes(code.slice(0, 2))
  return connectionFault.test(code)
}

export const describe = (error: unknown) =>
  (error instanceof Error && error.message) || String((error as { code?: string }).code)

/** What an error of Postgres or of its connection says: whose fault it is, and in which words. */

import { NoConnection } from './dial.ts'

/** SQLSTATE read_only_sql_transaction. */
export const readOnlyFault = '25006'

/** Providers set default_transaction_read_only on a primary too, for example when its disk is full. */
export const primaryAdvice =
  'point DATABASE_URL at the primary, not at a standby; if it is the primary, its default_transaction_read_only is on'

/** SQLSTATE insufficient_privilege. */
export const permissionFault = '42501'
/** Where the grants are. */
export const grantsSection = '"A role without DDL" in docs/operations.md'

/**
 * SQLSTATE classes that blame our statement: cardinality, data, constraint, syntax. Any other
 * describes the state of the server.
 */
const ourFaultClasses = ['21', '22', '23', '42']

/**
 * Error codes of postgres.js, sockets, name resolution and TLS. Others (ERR_…, UNDEFINED_VALUE) are
 * faults in our code.
 */
const connectionFault = /^(CONNECT|E[A-Z]+$|EAI_|ERR_SSL_)/

/** Whether the connection is broken, or there was none. */
export function isConnectionFault(error: unknown): boolean {
  return connectionFault.test(String((error as { code?: unknown }).code))
}

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
  // A grant is missing, perhaps since an upgrade.
  if (code === permissionFault) return true
  if (/^[0-9A-Z]{5}$/.test(code)) return !ourFaultClasses.includes(code.slice(0, 2))
  return isConnectionFault(error)
}

/** What happened, and what to do about it where that is in the settings. */
export function describe(error: unknown): string {
  const advice = adviceOn(error)
  const { code, message: given } = error as { code?: string; message?: string }
  // postgres.js adds a host that it does not know: the socket is ours.
  const isLate = given?.startsWith('write CONNECT_TIMEOUT')
  const message = isLate ? 'no answer in time' : given || String(code)
  return advice === null ? message : `${message}; ${advice}`
}

/** SQLSTATE too_many_connections: of the server, the database or the role. PgBouncer has no code for it. */
const isFull = (code: unknown, message: unknown) =>
  code === '53300' || /no more connections allowed/.test(String(message))

/** A phrase that may follow a semicolon; null if nothing is known. */
export function adviceOn(error: unknown): string | null {
  const { code, message } = error as { code?: unknown; message?: string }
  if (code === readOnlyFault) return `this server takes no writes: ${primaryAdvice}`
  const refused = /^permission denied to set parameter (".*")/.exec(String(message))?.[1]
  if (refused !== undefined)
    return `the URL has the parameter ${refused}, which this role may not set: remove it`
  if (code === permissionFault) return `check the grants: ${grantsSection}`
  if (isFull(code, message)) return 'raise that limit: see "Postgres" in docs/operations.md'
  const unknown = /^unrecognized configuration parameter (".*")/.exec(String(message))?.[1]
  if (unknown !== undefined)
    return `Latchkey does not know the parameter ${unknown} of the URL, so it was sent as a session setting: remove it`
  return refusesParameter(error) ? 'see "PgBouncer" in docs/operations.md' : null
}

/** Only its message tells: PgBouncer uses one SQLSTATE for most of its errors. */
function refusesParameter(error: unknown): boolean {
  return /unsupported startup parameter/.test(String((error as { message?: unknown }).message))
}

/**
 * Waiting does not help: no usable Postgres, a wrong password or database name (SQLSTATE classes 28
 * and 3D), a missing grant, or a pooler that refuses a parameter.
 */
export function isFinal(error: unknown): boolean {
  if (error instanceof NoConnection) return error.isFinal
  const code = String((error as { code?: unknown }).code)
  return code === permissionFault || /^(28|3D)/.test(code) || refusesParameter(error)
}

/**
 * Chooses among several hosts at the start. A pool looks for another host once the one in use
 * refuses a write; a command or a migration would have failed by then.
 */

import { withoutAddress } from '../rules/finding.ts'
import { type Address, readAddress } from './address.ts'
import { postgresAt } from './connect.ts'
import { NoConnection } from './dial.ts'
import { describe, isFinal } from './faults.ts'
import type { SslSettings } from './ssl.ts'

interface SearchOptions {
  ssl: SslSettings
  /** Milliseconds for all hosts together. */
  timeoutMs: number
  signal?: AbortSignal | undefined
}

/**
 * The URL with the first host that takes writes in front. If none does, the URL as it is. Rejects if
 * none answers: postgres.js would go on trying them, and report only that time was up.
 */
export async function writableFirst(url: string, { ssl, timeoutMs, signal }: SearchOptions): Promise<string> {
  const { hosts } = readAddress(url, ssl)
  if (hosts.length === 1) return url
  const options = {
    connect_timeout: timeoutMs / 1000 / hosts.length,
    connection: { application_name: 'latchkey search' },
  }
  const failures: unknown[] = []
  for (const [index, host] of hosts.entries()) {
    const isWritable = await postgresAt(withHosts(url, [host]), ssl)
      .findWritable(options, signal)
      .catch((error) => {
        failures.push(error)
        return false
      })
    signal?.throwIfAborted()
    if (isWritable) return withHosts(url, [...hosts.slice(index), ...hosts.slice(0, index)])
  }
  if (failures.length === hosts.length) throw failureOf(failures)
  return url
}

/** The one that all hosts share, or what each of them says. It is final if all are. */
function failureOf(failures: unknown[]): unknown {
  const reasons = failures.map((failure) => withoutAddress(describe(failure)))
  if (new Set(reasons).size === 1) return failures[0]
  const message = reasons.map((reason, i) => `host ${i + 1}: ${reason}`).join('; ')
  return new NoConnection(message, failures.every(isFinal) ? 'CONNECT_UNUSABLE' : 'CONNECTION_CLOSED')
}

function withHosts(url: string, hosts: Address['hosts']): string {
  const changed = new URL(url)
  changed.searchParams.set('host', hosts.map(({ host }) => host).join())
  changed.searchParams.set('port', hosts.map(({ port }) => port).join())
  return changed.href
}

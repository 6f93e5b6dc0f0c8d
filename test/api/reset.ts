// A client that has gone by the time its key is found.
import { once } from 'node:events'
import type { Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import type postgres from 'postgres'
import { lockWaitOf } from '../process/held-at-start.ts'
import { until } from '../process/until.ts'

/**
 * Sends the request, and resets the connection while the key is looked up. Resolves to the entry of
 * the audit log.
 */
export async function resetWhileLookedUp(
  sql: postgres.Sql,
  server: Server,
  { path, headers = {} }: { path: string; headers?: Record<string, string> },
) {
  await sql.begin(async (tx) => {
    await tx`lock table api_keys`
    const accepted = once(server, 'connection')
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
    client.on('error', () => {})
    const lines = Object.entries({ host: 'x', authorization: 'Bearer lk_x', ...headers })
    const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')
    client.write(`GET ${path} HTTP/1.1\r\n${head}\r\n`)
    const [connection] = (await accepted) as [Socket]
    const closed = new Promise((resolve) => connection.once('close', resolve))
    await lockWaitOf(sql, '%key_hash >= asked.hash%')
    client.resetAndDestroy()
    await closed
  })
  const found = () => sql`select ip, reason from audit_log where path = ${path}`
  await until('it is in the audit log', async () => (await found()).length > 0)
  return (await found())[0]
}

/** Where the listeners of `serve` open, and what keeps them from it. */
import { lookup } from 'node:dns/promises'
import type { FastifyInstance } from 'fastify'
import type { Config } from '../config.ts'

/**
 * For a name with several addresses Fastify would open more servers, without our handlers for
 * parser errors: so one address for each listener.
 */
export async function addressesOf({ opsHost, host }: Config): Promise<[ops: string, service: string]> {
  const [ops, service] = await Promise.all(
    [lookup(opsHost), lookup(host)].map((found) => found.catch(() => null)),
  )
  const faults = [
    ...(ops ? [] : ['OPS_HOST does not resolve']),
    ...(service ? [] : ['HOST does not resolve']),
  ]
  if (!ops || !service) throw new Error(faults.join('; '))
  return [ops.address, service.address]
}

interface Listener {
  /** What the names of its HOST and PORT variables begin with. */
  prefix: 'OPS_' | ''
  server: FastifyInstance
  host: string
  port: number
  /** Not to be shared with other workers. */
  exclusive: boolean
}

/** Names everything that keeps them from listening, not only the first. */
export async function listenOnAll(listeners: Listener[]) {
  const outcomes = await Promise.allSettled(
    listeners.map(async ({ server, host, port, exclusive }) => server.listen({ host, port, exclusive })),
  )
  const faults = outcomes.flatMap((outcome, i) => {
    if (outcome.status === 'fulfilled') return []
    const { prefix, port } = listeners[i]!
    const { code, message } = outcome.reason as NodeJS.ErrnoException
    if (code === 'EADDRNOTAVAIL') return `${prefix}HOST is not an address of this machine`
    const another = `choose another with ${prefix}PORT`
    if (code === 'EACCES') return `this user may not listen on port ${port}: ${another}`
    return code === 'EADDRINUSE' ? `port ${port} is in use: ${another}` : message
  })
  if (faults.length > 0) throw new Error(faults.join('; '))
}

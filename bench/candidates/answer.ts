/**
 * What the peers answer: the bytes and headers of Latchkey's GET /v1/verify, with constant values.
 * Before it measures, the driver compares each candidate's answer with Latchkey's.
 */
import type { ServerOptions } from 'node:http'
import type { AddressInfo } from 'node:net'
import Fastify, { type FastifyInstance, type FastifyReply } from 'fastify'
import { Verified } from '../../schemas/verify.ts'

export const limit = 1_000_000_000

export const body: Verified = {
  key_id: 'apk_0mwpepm550000025uf9bfeblpp',
  user_id: 'usr_0mwpeo45t00000l0hjaqcx0kw6',
  rate_limit_rpm: limit,
  expires_at: null,
}

/** Uses Latchkey's keep-alive time, because every response carries it in a header. */
export const createApp = (http: ServerOptions = {}) =>
  Fastify({ logger: false, keepAliveTimeout: 75_000, http })

/** The route's schema: all candidates serialise with the same one. */
export const route = { schema: { response: { 200: Verified } } }

/** Adds the headers of every response. */
export const harden = (reply: FastifyReply) =>
  reply.header('x-content-type-options', 'nosniff').header('cache-control', 'no-store')

/** Adds all headers that have nothing to do with counting. */
export const identify = (reply: FastifyReply) =>
  harden(reply)
    .header('x-request-id', 'req_0mwpepm4t0000025uf9bfeblpp')
    .header('x-key-id', body.key_id)
    .header('x-user-id', body.user_id)

export async function listen(app: FastifyInstance): Promise<void> {
  process.once('SIGTERM', () => process.exit(0))
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as AddressInfo
  console.log(JSON.stringify({ msg: 'listening', port }))
}

export function required(name: string): string {
  const value = process.env[name]
  if (value === undefined) throw new Error(`${name} is required`)
  return value
}

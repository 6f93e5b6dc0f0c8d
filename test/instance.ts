/**
 * Instances of the service on real servers, for tests: started in this process, closed at the end
 * of the test.
 */
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { pino } from 'pino'
import postgres from 'postgres'
import type { Test } from 'tap'
import { type Config, readConfig } from '../src/config.ts'
import { createOps, type OpsOptions } from '../src/ops/listener.ts'
import { type CloseOptions, openService, type Service } from '../src/process/service.ts'
import { newId } from '../src/rules/id.ts'
import { keyBody, type User } from '../src/stores.ts'
import { type Described, describedBy } from './openapi/described.ts'
import { ask } from './process/ask.ts'
import type { Services } from './services/index.ts'
import { scaled } from './soak.ts'

/**
 * How many times longer than in production an instance waits for Redis and Postgres. A busy machine
 * may take longer than 100 ms to answer; only tests of the time limits themselves, and the soak,
 * use the real ones.
 */
const usualPatience = scaled(20, 1)
export const realTimeLimits = { patience: 1 }

export const hashSecret = 'a secret of the tests, thirty-two characters at least'

export interface Answer {
  status: number
  headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: tests read whatever a body should hold
  body: any
  text: string
}

export interface Ask {
  token?: string
  /** Sent as JSON. */
  json?: unknown
  /** Sent as it is. */
  body?: string | Uint8Array
  headers?: Record<string, string>
}

export interface Instance {
  url: string
  port: number
  service: Service
  config: Config
  /** Log lines so far, parsed. */
  log: Record<string, unknown>[]
  ask(method: string, path: string, ask?: Ask): Promise<Answer>
  close(options?: CloseOptions): Promise<void>
}

export async function startInstance(
  t: Test,
  services: Pick<Services, 'databaseUrl' | 'redisUrl' | 'connectRedis'>,
  env: Record<string, string> = {},
  { patience = usualPatience }: { patience?: number } = {},
): Promise<Instance> {
  const config = readConfig({
    DATABASE_URL: services.databaseUrl,
    ...(services.redisUrl !== null && { REDIS_URL: services.redisUrl }),
    HASH_SECRET: hashSecret,
    PORT: '0',
    BASE_URL: 'http://latchkey.test',
    // Every test comes from one address.
    REFUSALS_PER_ADDRESS_RPM: '1000000000',
    ...env,
  })
  const log: Record<string, unknown>[] = []
  const logger = pino(
    { level: config.logLevel },
    { write: (line: string) => void log.push(JSON.parse(line)) },
  )
  const service = await openService(config, logger, {
    role: 'serve',
    patience,
    // Redis as a last resort lives in this process and has no URL.
    ...(services.redisUrl === null && {
      redis: services.connectRedis({
        enableOfflineQueue: false,
        autoResendUnfulfilledCommands: false,
        maxRetriesPerRequest: 0,
      }),
    }),
  })
  await service.app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = service.app.server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}`

  let closed: Promise<void> | undefined
  const close = (options?: CloseOptions) => {
    closed ??= service.close(options)
    return closed
  }
  t.teardown(() => close())
  return { url, port, service, config, log, close, ask: asker(url, service.app) }
}

export interface Ops {
  url: string
  port: number
  ask(method: string, path: string, ask?: Ask): Promise<Answer>
}

/** The ops listener of an instance, with the tokens of its configuration. */
export async function startOps(
  t: Test,
  { service, config }: Instance,
  { now, state = () => 'ready' }: Partial<Pick<OpsOptions, 'now' | 'state'>> = {},
): Promise<Ops> {
  const ops = createOps({ config, service, docsBase: service.app.docsBase, state, now })
  await ops.listen({ host: '127.0.0.1', port: 0 })
  t.teardown(() => ops.close())
  const { port } = ops.server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}`
  return { url, port, ask: asker(url, ops) }
}

/** Every response must be one that the listener's API document describes. */
function asker(url: string, app: FastifyInstance) {
  let expectDescribed: Described | undefined
  return async (method: string, path: string, asked?: Ask) => {
    const answer = await ask(`${method} ${url}${path}`, asked)
    expectDescribed ??= describedBy(app.openapi())
    expectDescribed(method, path, answer)
    return answer
  }
}

const operator = () => ({
  requestId: newId('req_'),
  keyId: null,
  operator: null,
  method: null,
  path: null,
  ip: null,
  userAgent: 'test',
})

/** A user made as the command line makes one. */
export async function makeUser({ service }: Instance, name = 'somebody'): Promise<User> {
  const created = await service.stores.users.create({ id: newId('usr_'), name }, operator())
  if (!created.ok) throw new Error(`not created: ${created.reason}`)
  return created.user
}

/** A key made as the command line makes one, with its token. */
export async function makeKey(
  { service, config }: Instance,
  wanted: { userId: string; name?: string; rateLimitRpm?: number; expiresAt?: number | null },
) {
  const { expiresAt = null } = wanted
  // No key is created expired: it becomes so afterwards.
  const isPast = expiresAt !== null && expiresAt * 1000 <= Date.now()
  const { token, key } = service.stores.mintKey({
    name: 'a key',
    rateLimitRpm: 1_000_000,
    ...wanted,
    expiresAt: isPast ? null : expiresAt,
  })
  const created = await service.stores.keys.create(key, operator())
  if (!created.ok) throw new Error(`not created: ${created.reason}`)
  if (isPast) await setExpiry(config.databaseUrl!, key.id, expiresAt)
  return { ...keyBody(created.key), expires_at: expiresAt, token, userId: wanted.userId }
}

async function setExpiry(databaseUrl: string, id: string, expiresAt: number) {
  const sql = postgres(databaseUrl, { max: 1 })
  await sql`update api_keys set expires_at = to_timestamp(${expiresAt}) where id = ${id}`
  await sql.end({ timeout: 1 })
}

/** A user with one key: what most tests begin with. */
export async function makeCaller(
  instance: Instance,
  wanted: { rateLimitRpm?: number; expiresAt?: number | null } = {},
) {
  const user = await makeUser(instance)
  return makeKey(instance, { userId: user.id, ...wanted })
}

/** Soft-deletes a user as `latchkey users delete` does. */
export async function deleteUser({ service }: Instance, id: string): Promise<void> {
  await service.stores.users.remove(id, operator())
}

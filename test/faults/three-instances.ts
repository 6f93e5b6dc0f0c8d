// Three instances of the service on one Redis and one Postgres, and somebody who makes users and keys for them.
import type { Redis } from 'ioredis'
import type { Test } from 'tap'
import { Unavailable } from '../../src/stores.ts'
import { type Instance, startInstance } from '../instance.ts'
import { type Env, externalEnv, runLatchkey, serveLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { findRedisServer } from '../services/binaries.ts'
import { type PrivateRedis, startPrivateRedis, useServices } from '../services/index.ts'

export interface ThreeInstances {
  readonly urls: readonly string[]
  /** A fourth, in this process: by its stores users and keys are made, as the command line makes them. */
  readonly operator: Instance
  /** A connection to look into their Redis by. */
  readonly redis: Redis
  /** The environment of the command line beside them. */
  readonly env: Env
  /** How often one of them lost sight of Redis so far, and counted by itself. */
  timesAway(): number
  /** Resolves when all count in Redis. */
  untilShared(): Promise<void>
}

const preparedAtMost = 5
const awayLine = /^Redis is away/
const linesAway = (log: Record<string, unknown>[]) =>
  log.filter(({ msg }) => awayLine.test(String(msg))).length

export interface ProcessOptions {
  /** For all, and for the command line. */
  env?: Env
  /** For one of them. */
  each?: readonly Env[]
}

/** As processes. */
export async function threeProcesses(
  t: Test,
  redis: PrivateRedis,
  { env: more = {}, each = [{}, {}, {}] }: ProcessOptions = {},
): Promise<ThreeInstances> {
  const services = await useServices(t)
  const here = { ...services, redisUrl: redis.url }
  const env = externalEnv(here, more)
  const operator = await startInstance(t, here, more)
  const serving = await Promise.all(each.map((own) => serveLatchkey(t, { ...env, ...own })))
  const look = services.connectRedis({ host: '127.0.0.1', port: redis.port })
  // Without a listener it would write of each time that Redis is taken away.
  look.on('error', () => {})
  const counts = async ({ opsUrl }: { opsUrl: string }) =>
    ((await (await fetch(`${opsUrl}/readyz`)).json()) as { redis: string }).redis
  return {
    urls: serving.map(({ url }) => url),
    operator,
    redis: look,
    env,
    timesAway: () => serving.reduce((sum, { log }) => sum + linesAway(log), 0),
    async untilShared() {
      await until('all count in Redis', async () =>
        (await Promise.all(serving.map(counts))).every((mode) => mode === 'shared'),
      )
    },
  }
}

/** As processes; where there is no redis-server that they could share, in this process on the Redis that lives in it. */
export async function threeInstances(t: Test): Promise<ThreeInstances> {
  if ((await findRedisServer()) !== null) return threeProcesses(t, (await startPrivateRedis(t))!)
  const services = await useServices(t)
  const instances = await Promise.all([1, 2, 3].map(() => startInstance(t, services)))
  return {
    urls: instances.map(({ url }) => url),
    operator: await startInstance(t, services),
    redis: services.connectRedis(),
    env: externalEnv(services),
    timesAway: () => instances.reduce((sum, { log }) => sum + linesAway(log), 0),
    untilShared: async () => {},
  }
}

/** By a process of its own; throws with what it said if it fails. */
export async function deleteByCommandLine(t: Test, { env }: ThreeInstances, userId: string): Promise<void> {
  const { code, stderr } = await runLatchkey(t, env, 'users', 'delete', userId)
  if (code !== 0) throw new Error(stderr)
}

/** What a test prepares may take longer than a client is made to wait: another try on a busy machine. */
export async function patiently<T>(prepare: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await prepare()
    } catch (error) {
      if (!(error instanceof Unavailable) || attempt === preparedAtMost) throw error
    }
  }
}

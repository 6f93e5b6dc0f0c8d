// Processes of the service on Redis servers of a test's own, and whether they share one count.
import type { Test } from 'tap'
import { isSlow } from '../faults/fleet.ts'
import { type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { type Env, externalEnv, type Serving, serveLatchkey } from './latchkey.ts'
import { type Metrics, parsePrometheus } from './prometheus.ts'
import { until } from './until.ts'

export interface Office {
  /** In this process and on the run's own Redis: makes users and keys. */
  readonly office: Instance
  start(redisUrl: string, env?: Env): Promise<Serving>
}

export async function startOffice(t: Test): Promise<Office> {
  const services = await useServices(t)
  const office = await startInstance(t, services)
  return {
    office,
    start: (redisUrl, env) =>
      serveLatchkey(t, externalEnv({ databaseUrl: services.databaseUrl, redisUrl }, env)),
  }
}

export const readyBody = async ({ opsUrl }: Serving) => (await ask(`GET ${opsUrl}/readyz`)).body

export const metricsOf = async ({ opsUrl }: Serving): Promise<Metrics> =>
  parsePrometheus((await ask(`GET ${opsUrl}/metrics`)).text)

export const untilShared = (service: Serving, boundMs?: number) =>
  until('it counts in Redis', async () => (await readyBody(service)).redis === 'shared', boundMs)

/** Resolves once it counts locally for this cause, and readiness, metric and log say so. */
export async function untilCause(service: Serving, cause: string): Promise<void> {
  await until(`it says ${cause}`, async () => {
    const { status, redis, redis_cause } = await readyBody(service)
    if (status !== 'ready') throw new Error(`readiness says ${status}`)
    return redis === 'local' && redis_cause === cause
  })
  // On a busy machine, one of the probes may time out meanwhile.
  await until(`the metrics say ${cause}`, async () => {
    const metrics = await metricsOf(service)
    if (metrics.value('latchkey_redis_degraded') !== 1) throw new Error('the gauge does not say degraded')
    return metrics.samples.some(
      ({ name, value, labels }) =>
        name === 'latchkey_redis_degraded_cause' && value === 1 && labels.cause === cause,
    )
  })
  await until(`the log says ${cause}`, () => service.log.some((line) => line.cause === cause))
}

const limit = 5
const roundsMax = 5

/**
 * How many requests of each key were admitted, of twice its limit sent by turns to each instance,
 * within one minute in which Redis was never too slow. Exact is the limit for every key.
 */
export async function admittedOf(office: Instance, services: Serving[], keyCount = 30): Promise<number[]> {
  const { id: userId } = await makeUser(office)
  const slowReplies = () =>
    services.flatMap(({ log }) => log.filter(({ reason }) => isSlow(String(reason)))).length
  for (let round = 0; round < roundsMax; round++) {
    const keys = await Promise.all(
      Array.from({ length: keyCount }, () => makeKey(office, { userId, rateLimitRpm: limit })),
    )
    const slowBefore = slowReplies()
    const resets = new Set<string | null>()
    const admitted = keys.map(() => 0)
    for (let n = 0; n < 2 * limit; n++) {
      await Promise.all(
        keys.map(async ({ token }, i) => {
          const { url } = services[n % services.length]!
          const { status, headers } = await ask(`GET ${url}/v1/verify`, { token })
          resets.add(headers.get('x-ratelimit-reset'))
          if (status === 200) admitted[i]!++
        }),
      )
    }
    for (const service of services) await untilShared(service, 20_000)
    // If a minute ends in between, it admits each key again. An instance that waits too long for
    // Redis counts by itself.
    if (resets.size === 1 && slowReplies() === slowBefore) return admitted
  }
  throw new Error('a minute ended or Redis was too slow in each round')
}

export const exactly = (count: number) => Array.from({ length: count }, () => limit)

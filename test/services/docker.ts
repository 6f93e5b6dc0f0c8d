// Postgres and Redis in containers. The keeper that starts them lives as long as the run, and so does its tie to
// testcontainers' reaper, which removes the containers should the keeper be killed.
import { setTimeout as pause } from 'node:timers/promises'
import { asArguments, postgresSettings } from './postgres-process.ts'
import { redisDatabases } from './redis-process.ts'
import type { Found } from './sources.ts'

const postgresImage = 'postgres:18-alpine'
const redisImage = 'redis:8-alpine'
// An engine answers in milliseconds; a DOCKER_HOST that leads nowhere would not for minutes.
const engineTimeoutMs = 3000

let engine: Promise<boolean> | undefined

export async function dockerPostgres(): Promise<Found | null> {
  if (!(await hasEngine())) return null
  const { PostgreSqlContainer } = await import('@testcontainers/postgresql')
  const container = await new PostgreSqlContainer(postgresImage)
    .withDatabase('postgres')
    .withUsername('postgres')
    .withCommand(['postgres', ...asArguments(postgresSettings)])
    .start()
  return {
    description: `from Docker (${postgresImage})`,
    url: container.getConnectionUri(),
    stop: async () => void (await container.stop()),
  }
}

export async function dockerRedis(): Promise<Found | null> {
  if (!(await hasEngine())) return null
  const { RedisContainer } = await import('@testcontainers/redis')
  const container = await new RedisContainer(redisImage)
    .withCommand(['redis-server', '--save', '', '--appendonly', 'no', '--databases', String(redisDatabases)])
    .start()
  return {
    description: `from Docker (${redisImage})`,
    url: container.getConnectionUrl(),
    stop: async () => void (await container.stop()),
  }
}

/** Asked once for both. Without an engine testcontainers says so within 2 ms. */
function hasEngine(): Promise<boolean> {
  engine ??= lookForEngine()
  return engine
}

async function lookForEngine(): Promise<boolean> {
  const { getContainerRuntimeClient } = await import('testcontainers')
  const found = getContainerRuntimeClient().then(
    () => true,
    () => false,
  )
  return Promise.race([found, pause(engineTimeoutMs, false, { ref: false })])
}

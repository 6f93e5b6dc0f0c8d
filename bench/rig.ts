/** Everything that a benchmark runs on, started for this run and removed after it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { hashSecret, type Keys, type Seeding, seedKeys } from './keys.ts'
import { chooseLoad, type Load } from './load/load.ts'
import {
  type Candidate,
  type CandidateName,
  type CandidateOptions,
  startCandidate,
} from './servers/candidate.ts'
import { type PostgresServer, startPostgres } from './servers/postgres.ts'
import { type RedisServer, startRedis } from './servers/redis.ts'

export interface Database extends Keys {
  url: string
}

export interface Rig {
  folder: string
  redis: RedisServer
  postgres: PostgresServer
  load: Load
  /** Length of a window, in seconds. */
  seconds: number
  /** Number of windows for each candidate. */
  rounds: number
  /** The program of another checkout of Latchkey to measure too. */
  before: string | null
  say(line: string): void
  /** Waits for the work that requests leave behind, which belongs to the window that caused it. */
  settle(): Promise<void>
  /** A database with this many keys. */
  database(purpose: string, keys: number, seeding?: Seeding): Promise<Database>
  start(
    name: CandidateName,
    servers: { url: string; redisUrl?: string },
    more?: Pick<CandidateOptions, 'nodeArgs' | 'cli' | 'env'>,
  ): Promise<Candidate>
  /**
   * Registers something else to stop with the candidates, before those that are already running.
   */
  stopWithCandidates(stop: () => Promise<void>): void
  /** Stops everything started since the last call. */
  stopCandidates(): Promise<void>
  close(): Promise<void>
}

/** Latchkey writes last_used_at within a second. The others get the same time, to be counted alike. */
const settleMs = 1100

type Closer = () => Promise<unknown>

const say = (line: string) => process.stderr.write(`${line}\n`)

/** Closes the last one first. A failure does not keep the others from closing. */
async function closeAll(closers: Closer[]): Promise<void> {
  for (const close of closers.splice(0).reverse())
    await close().catch((error: Error) => say(`while stopping: ${error.message}`))
}

export async function openRig({
  seconds,
  rounds,
  before,
}: Pick<Rig, 'seconds' | 'rounds' | 'before'>): Promise<Rig> {
  const closers: Closer[] = []
  const candidates: Closer[] = []
  const close = async () => {
    await closeAll(candidates)
    await closeAll(closers)
  }
  try {
    const folder = await mkdtemp(join(tmpdir(), 'latchkey-bench-'))
    closers.push(() => rm(folder, { recursive: true, force: true }))
    const redis = await startRedis(folder, process.env.BENCH_REDIS_URL)
    closers.push(() => redis.stop())
    const postgres = await startPostgres(folder, process.env.BENCH_DATABASE_URL)
    closers.push(() => postgres.stop())
    return {
      folder,
      redis,
      postgres,
      load: chooseLoad(),
      seconds,
      rounds,
      before,
      say,
      settle: () => pause(settleMs),
      async database(purpose, keys, seeding) {
        say(`a database with ${keys} ${keys === 1 ? 'key' : 'keys'}`)
        const url = await postgres.createDatabase(purpose)
        return { url, ...(await seedKeys(url, folder, keys, seeding)) }
      },
      async start(name, { url, redisUrl = redis.url }, more = {}) {
        const options = { databaseUrl: url, redisUrl, hashSecret, ...more }
        const candidate = await startCandidate(name, options)
        candidates.push(() => candidate.stop())
        return candidate
      },
      stopWithCandidates: (stop) => candidates.push(stop),
      stopCandidates: () => closeAll(candidates),
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

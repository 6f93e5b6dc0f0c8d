/** How long the program takes to start: until the service answers, and until a command has ended. */
import { execFile, spawn } from 'node:child_process'
import { get } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { freePort } from '../../src/embedded/free-port.ts'
import { firstLine } from '../benchmarks/compare.ts'
import { hashSecret } from '../keys.ts'
import { atMost, type Target } from '../outcome.ts'
import { latchkeyCli } from '../paths.ts'
import type { Database, Rig } from '../rig.ts'
import { endsWithUs, stopProcess } from '../servers/stop-process.ts'
import { estimate } from '../statistics.ts'
import { userId } from './kinds.ts'

const starts = 7
const serveSMax = 0.5
const commandSMax = 0.3
const startSMax = 20
const retryMs = 5

export async function startTimes(
  rig: Rig,
  database: Database,
): Promise<{ targets: Target[]; notes: string[] }> {
  const token = await firstLine(database.tokensFile)
  const env = {
    PATH: process.env.PATH,
    NODE_ENV: 'production',
    DATABASE_URL: database.url,
    REDIS_URL: rig.redis.url,
    HASH_SECRET: hashSecret,
  }
  const command =
    (...args: string[]) =>
    async () => {
      await promisify(execFile)(process.execPath, [latchkeyCli, ...args], { env })
    }
  const measured = [
    { what: '`serve` until the first 200', limitS: serveSMax, run: () => firstAnswer(env, token) },
    { what: '`keys list`', limitS: commandSMax, run: timed(command('keys', 'list', '--user', userId(0))) },
    { what: '`--help`', limitS: commandSMax, run: timed(command('--help')) },
  ]
  const targets: Target[] = []
  const notes: string[] = []
  for (const { what, limitS, run } of measured) {
    rig.say(what)
    // The first one reads the files from disk.
    await run()
    const tookS: number[] = []
    while (tookS.length < starts) tookS.push(await run())
    targets.push(atMost(`${what}, median of ${starts}`, estimate(tookS), limitS, 's'))
    notes.push(`${what}: ${tookS.map((s) => (s * 1000).toFixed(0)).join(', ')} ms.`)
  }
  return { targets, notes }
}

const timed = (run: () => Promise<void>) => async () => {
  const startMs = performance.now()
  await run()
  return (performance.now() - startMs) / 1000
}

/** Seconds from the start of the process. */
async function firstAnswer(env: NodeJS.ProcessEnv, token: string): Promise<number> {
  const port = await freePort()
  const startMs = performance.now()
  const child = spawn(process.execPath, [latchkeyCli, 'serve'], {
    env: { ...env, PORT: String(port), OPS_PORT: '0', DRAIN_SECONDS: '0' },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  endsWithUs(child)
  const tookS = () => (performance.now() - startMs) / 1000
  try {
    while ((await statusOf(port, token)) !== 200) {
      if (tookS() > startSMax) throw new Error(`serve has not answered in ${startSMax} s`)
      await pause(retryMs)
    }
    return tookS()
  } finally {
    await stopProcess(child)
  }
}

/** Null if nobody listens. */
const statusOf = (port: number, token: string): Promise<number | null> =>
  new Promise((resolve) => {
    const headers = { authorization: `Bearer ${token}` }
    get({ port, path: '/v1/verify', headers, agent: false }, (response) => {
      response.resume()
      resolve(response.statusCode ?? null)
    }).on('error', () => resolve(null))
  })

/** The Redis the candidates count in: our own redis-server, or the one in BENCH_REDIS_URL. */
import { type ChildProcess, spawn } from 'node:child_process'
import { Redis } from 'ioredis'
import { freePort } from '../../src/embedded/free-port.ts'
import { endsWithUs, stopProcess } from './stop-process.ts'

interface RedisUsage {
  /** EVALSHA, EVAL and FCALL, as clients sent them. Calls made by scripts are not counted. */
  scriptCalls: number
  /** User and system time of the server process since its start, in microseconds. */
  cpuUs: number
}

export interface RedisServer {
  url: string
  version: string
  usage(): Promise<RedisUsage>
  stop(): Promise<void>
}

/** Our own takes a moment to start. A given one may be silent, or behind a firewall. */
const reachMsMax = 10_000

export async function startRedis(folder: string, givenUrl: string | undefined): Promise<RedisServer> {
  const port = await freePort()
  const server = givenUrl === undefined ? await spawnServer(port, folder) : null
  const url = givenUrl ?? `redis://127.0.0.1:${port}`
  const client = new Redis(url, { retryStrategy: () => 50, maxRetriesPerRequest: 100 })
  client.on('error', () => {})
  let gaveUp = false
  const timer = setTimeout(() => {
    gaveUp = true
    client.disconnect()
  }, reachMsMax)
  const stop = async () => {
    client.disconnect()
    if (server !== null) await stopProcess(server)
  }
  try {
    return {
      url,
      version: /redis_version:(\S+)/.exec(await client.info('server'))?.[1] ?? 'unknown',
      usage: async () => ({
        scriptCalls: scriptCalls(await client.info('commandstats')),
        cpuUs: cpuUs(await client.info('cpu')),
      }),
      stop,
    }
  } catch (error) {
    await stop()
    const why = gaveUp ? `no answer in ${reachMsMax / 1000} s` : (error as Error).message
    throw new Error(`Redis cannot be reached: ${why}`)
  } finally {
    clearTimeout(timer)
  }
}

function spawnServer(port: number, folder: string): Promise<ChildProcess> {
  const args = [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--appendonly',
    'no',
    '--dir',
    folder,
  ]
  return new Promise((resolve, reject) => {
    const server = spawn('redis-server', args, { stdio: 'ignore' })
    endsWithUs(server)
    server.once('spawn', () => resolve(server))
    server.once('error', () =>
      reject(
        new Error(
          'redis-server is not on PATH: install it, or set BENCH_REDIS_URL to a Redis with no other use',
        ),
      ),
    )
  })
}

function scriptCalls(commandStats: string): number {
  const calls = commandStats.matchAll(/^cmdstat_(?:evalsha|eval|fcall):calls=(\d+)/gm)
  return [...calls].reduce((sum, [, count]) => sum + Number(count), 0)
}

function cpuUs(cpu: string): number {
  const seconds = cpu.matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)
  return [...seconds].reduce((sum, [, s]) => sum + Number(s) * 1e6, 0)
}

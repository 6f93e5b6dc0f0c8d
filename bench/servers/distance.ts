/** Puts a network between a candidate and its servers. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Redis } from 'ioredis'
import { delayProgram } from '../paths.ts'
import { median } from '../statistics.ts'
import { stopProcess } from './stop-process.ts'

interface Distance {
  /** Of the same server, through the delay. */
  url: string
  stop(): Promise<void>
}

/** `delayMs`: what is added to each round trip; timers add up to a millisecond of their own. */
export async function awayFrom(url: string, delayMs: number): Promise<Distance> {
  const { hostname, port } = new URL(url)
  const child = fork(delayProgram, [hostname, port, String(delayMs)])
  const [ownPort] = await once(child, 'message')
  return {
    url: Object.assign(new URL(url), { host: `127.0.0.1:${ownPort}` }).href,
    stop: () => stopProcess(child),
  }
}

const pings = 200

/** The median round trip to a Redis, milliseconds. */
export async function roundTripMs(redisUrl: string): Promise<number> {
  const client = new Redis(redisUrl)
  const tookMs: number[] = []
  for (let i = 0; i < pings; i++) {
    const startMs = performance.now()
    await client.ping()
    tookMs.push(performance.now() - startMs)
  }
  client.disconnect()
  return median(tookMs)
}

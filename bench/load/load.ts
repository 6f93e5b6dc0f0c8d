/**
 * The load: what is sent, and what came back. It comes from wrk if that is on PATH, because wrk
 * keeps up; otherwise from autocannon (npm).
 */
import { spawnSync } from 'node:child_process'
import { quantile } from '../statistics.ts'
import { shootAutocannon } from './autocannon.ts'
import { shootWrk } from './wrk.ts'

export interface Shot {
  /** Includes the path. */
  url: string
  /**
   * One token per line, or one call: method, path, token, and a body if any. All lines have the same
   * length, or none is skipped.
   */
  tokensFile: string
  /** How many tokens to skip, and how many to use in turn. */
  first: number
  count: number
  connections: number
  seconds: number
  /** A load that knows calls these: the connections are open, and all responses are here. */
  onOpen?(): Promise<void>
  beforeClose?(): Promise<void>
}

export interface Hit {
  requests: number
  seconds: number
  /** Failed connections and missing responses. */
  failed: number
  /** Responses that were not 2xx. */
  notOk: number
  p50Ms: number
  p99Ms: number
}

/** The hit of a load that recorded every latency, one for each request unless `other` says more. */
export const hitOf = (latenciesMs: number[], other: Pick<Hit, 'seconds'> & Partial<Hit>): Hit => ({
  requests: latenciesMs.length,
  failed: 0,
  notOk: 0,
  p50Ms: quantile(latenciesMs, 0.5),
  p99Ms: quantile(latenciesMs, 0.99),
  ...other,
})

/** A closed loop in this process: each connection makes its next call when the last one has ended. */
export async function callInTurn(
  { connections, seconds }: Pick<Shot, 'connections' | 'seconds'>,
  call: () => Promise<unknown>,
): Promise<Hit> {
  const latenciesMs: number[] = []
  const startMs = performance.now()
  const keepCalling = async () => {
    for (let atMs = startMs; atMs < startMs + seconds * 1000; ) {
      await call()
      latenciesMs.push(performance.now() - atMs)
      atMs = performance.now()
    }
  }
  await Promise.all(Array.from({ length: connections }, keepCalling))
  return hitOf(latenciesMs, { seconds: (performance.now() - startMs) / 1000 })
}

/** Throws unless every response arrived and was 2xx. */
export function checked(name: string, hit: Hit): Hit {
  const { requests, failed, notOk } = hit
  if (requests === 0 || failed > 0 || notOk > 0)
    throw new Error(`${name}: of ${requests} requests, ${notOk} got an error and ${failed} no answer at all`)
  return hit
}

export interface Load {
  name: string
  shoot(shot: Shot): Promise<Hit>
}

export function chooseLoad(): Load {
  // wrk prints its version and exits with code 1.
  const { stdout } = spawnSync('wrk', ['--version'], { encoding: 'utf8' })
  const version = /^wrk (\S+)/.exec(stdout ?? '')?.[1]
  return version === undefined
    ? { name: 'autocannon', shoot: shootAutocannon }
    : { name: `wrk ${version}`, shoot: shootWrk }
}

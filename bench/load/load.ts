/** Load: what is sent, and what came of it. wrk where it is on PATH, because it keeps up; autocannon (npm) where it is not. */
import { spawnSync } from 'node:child_process'
import { shootAutocannon } from './autocannon.ts'
import { shootWrk } from './wrk.ts'

export interface Shot {
  /** Where to, with the path. */
  url: string
  /** One token a line, all of one length. */
  tokensFile: string
  /** Tokens to skip, and to use in turn. */
  first: number
  count: number
  connections: number
  seconds: number
}

export interface Hit {
  requests: number
  seconds: number
  /** Connections that failed, and answers that did not come. */
  failed: number
  /** Answers that were not 2xx. */
  notOk: number
  p50Ms: number
  p99Ms: number
}

export interface Load {
  name: string
  shoot(shot: Shot): Promise<Hit>
}

export function chooseLoad(): Load {
  // It tells its version with exit code 1.
  const { stdout } = spawnSync('wrk', ['--version'], { encoding: 'utf8' })
  const version = /^wrk (\S+)/.exec(stdout ?? '')?.[1]
  return version === undefined
    ? { name: 'autocannon', shoot: shootAutocannon }
    : { name: `wrk ${version}`, shoot: shootWrk }
}

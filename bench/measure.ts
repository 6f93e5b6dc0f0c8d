/** Measures one window: some seconds of load, and what it cost every process involved. */
import { checked, type Load, type Shot } from './load/load.ts'
import type { Rig } from './rig.ts'
import type { Candidate } from './servers/candidate.ts'

/** What is measured, and which tokens it is sent. */
export interface Subject {
  name: string
  url: string
  /** The processes whose CPU time counts. */
  processes: Candidate[]
  /** Instead of that of the rig. */
  load?: Load
  tokensFile: string
  /** The tokens of a round; round 0 is the warm-up. */
  tokens(round: number): { first: number; count: number }
  /** Whether each token may be used only once. */
  onlyOnce?: boolean
  /** Instead of the usual number. */
  connections?: number
  /** What comes before a window and its lead-in. It resolves to what comes after them. */
  begin?(): Promise<() => void>
}

export interface Sample {
  requestsPerS: number
  /** CPU time of the server process (or processes) per request, microseconds. */
  cpuUs: number
  p50Ms: number
  p99Ms: number
  scriptCalls: number
  redisCpuUs: number
  postgresCpuUs: number | null
}

export const connections = 64
const path = '/v1/verify'
/**
 * Seconds of full load before a window. Cached keys expired while others were measured, and reading
 * all of them again would weigh too much in a short window. A process that was idle also costs more
 * at first, and a low rate would not change that for seconds.
 */
const leadInS = (keys: number) => Math.max(1, Math.ceil(keys / 20_000))

export async function measure(rig: Rig, subject: Subject, round: number, seconds: number): Promise<Sample> {
  const end = await subject.begin?.()
  try {
    return await measureWindow(rig, subject, round, seconds)
  } finally {
    end?.()
  }
}

async function measureWindow(rig: Rig, subject: Subject, round: number, seconds: number): Promise<Sample> {
  const { tokensFile, onlyOnce, name, load = rig.load } = subject
  const atOnce = subject.connections ?? connections
  const { first, count } = subject.tokens(round)
  const shot: Shot = { url: subject.url + path, tokensFile, first, count, connections: atOnce, seconds }

  if (count > 1 && !onlyOnce) checked(name, await rig.load.shoot({ ...shot, seconds: leadInS(count) }))
  const settled = async () => {
    await rig.settle()
    return used(rig, subject)
  }
  let before = await used(rig, subject)
  let atClose: Used | undefined
  const hit = await load.shoot({
    ...shot,
    onOpen: async () => {
      before = await used(rig, subject)
    },
    beforeClose: async () => {
      atClose = await settled()
    },
  })
  const after = atClose ?? (await settled())

  const { requests } = checked(name, hit)
  if (onlyOnce && requests + atOnce > count) throw new Error(`${name}: ${count} tokens were too few`)
  const perRequest = (of: (use: Used) => number) => (of(after) - of(before)) / requests
  return {
    requestsPerS: requests / hit.seconds,
    cpuUs: perRequest((use) => use.cpuUs),
    p50Ms: hit.p50Ms,
    p99Ms: hit.p99Ms,
    scriptCalls: perRequest((use) => use.redis.scriptCalls),
    redisCpuUs: perRequest((use) => use.redis.cpuUs),
    postgresCpuUs: after.postgresCpuUs === null ? null : perRequest((use) => use.postgresCpuUs!),
  }
}

type Used = Awaited<ReturnType<typeof used>>

async function used({ redis, postgres }: Rig, { processes }: Subject) {
  const usages = await Promise.all(processes.map((one) => one.usage()))
  return {
    cpuUs: usages.reduce((sum, { cpuUs }) => sum + cpuUs, 0),
    redis: await redis.usage(),
    postgresCpuUs: postgres.cpuUs(),
  }
}

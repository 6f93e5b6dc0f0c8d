/** A steady load of requests, sent on time whatever becomes of the earlier ones, and what came of each. */
import { Agent, request } from 'node:http'
import type { Test } from 'tap'
import { scaled } from './soak.ts'

export interface Sample {
  /** When it was sent, performance.now(). */
  readonly sentMs: number
  /** From then to the last byte of the answer, or to the fault. */
  readonly tookMs: number
  /** Which of the urls. */
  readonly target: number
  /** 0: no answer. */
  readonly status: number
  /** Of the connection, where there was no answer. */
  readonly fault: string | null
  readonly headers: Record<string, string | string[] | undefined>
  readonly body: string
}

export interface LoadOptions {
  /** In turn. */
  urls: readonly string[]
  /** In turn. */
  tokens: readonly string[]
  perSecond: number
  path?: string
  method?: string
  /** Sent as JSON. */
  json?: unknown
}

export interface Load {
  /** What has been answered so far, in the order of the answers. */
  readonly samples: Sample[]
  /** Sends no more, and resolves once all are answered. */
  stop(): Promise<Sample[]>
}

/** After this a request without an answer is hanging. */
const hangingMs = scaled(60_000, 10_000)
const tickMs = 5

/** Starts at once; stopped at the end of the test at the latest. */
export function startLoad(t: Test, options: LoadOptions): Load {
  const { urls, tokens, perSecond, path = '/v1/verify', method = 'GET', json } = options
  const body = json === undefined ? '' : JSON.stringify(json)
  const agent = new Agent({ keepAlive: true, maxSockets: 256 })
  const samples: Sample[] = []
  const underWay = new Set<Promise<void>>()
  const startMs = performance.now()
  let sent = 0

  function send() {
    const target = sent % urls.length
    const token = tokens[sent % tokens.length]!
    sent++
    const one = ask(agent, method, urls[target]! + path, token, body).then((answer) => {
      samples.push({ ...answer, target })
      underWay.delete(one)
    })
    underWay.add(one)
  }

  const timer = setInterval(() => {
    const due = ((performance.now() - startMs) / 1000) * perSecond
    while (sent < due) send()
  }, tickMs)

  async function stop() {
    clearInterval(timer)
    await Promise.all(underWay)
    agent.destroy()
    return samples
  }
  t.teardown(stop)
  return { samples, stop }
}

function ask(
  agent: Agent,
  method: string,
  url: string,
  token: string,
  json: string,
): Promise<Omit<Sample, 'target'>> {
  const headers = {
    authorization: `Bearer ${token}`,
    ...(json !== '' && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(json) }),
  }
  return new Promise((resolve) => {
    const sentMs = performance.now()
    const end = (rest: Omit<Sample, 'target' | 'sentMs' | 'tookMs'>) =>
      resolve({ sentMs, tookMs: performance.now() - sentMs, ...rest })
    const failed = (error: Error & { code?: string }) =>
      end({ status: 0, fault: error.code ?? error.message, headers: {}, body: '' })
    const sending = request(url, { agent, method, headers })
    sending.setTimeout(hangingMs, () => sending.destroy(new Error(`no answer in ${hangingMs} ms`)))
    sending.on('error', failed)
    sending.on('response', (response) => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', (text) => {
        body += text
      })
      response.on('error', failed)
      response.on('end', () =>
        end({ status: response.statusCode!, fault: null, headers: response.headers, body }),
      )
    })
    sending.end(json)
  })
}

/** How many of each status. */
export function statuses(samples: readonly Sample[]): Record<number, number> {
  const counts: Record<number, number> = {}
  for (const { status } of samples) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

/** How many were neither admitted nor over their limit: 5xx, 401 or no answer. */
export const failedOf = (samples: readonly { status: number }[]): number =>
  samples.filter(({ status }) => status !== 200 && status !== 429).length

/** The q-quantile (0 to 1) by nearest rank; NaN of nothing. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * q) - 1)] ?? Number.NaN
}

/** Of how long they took. */
export const p99 = (samples: readonly Pick<Sample, 'tookMs'>[]): number =>
  quantile(
    samples.map(({ tookMs }) => tookMs),
    0.99,
  )

/**
 * Load from autocannon, in the driver's process: at most what one Node process can send, with
 * latencies in whole milliseconds.
 */
import { readFile } from 'node:fs/promises'
import autocannon from 'autocannon'
import type { Hit, Shot } from './load.ts'

const call = /^([A-Z]+) (\S+) (\S+) ?(.*)$/

export async function shootAutocannon(shot: Shot): Promise<Hit> {
  const { url, tokensFile, first, count, connections, seconds } = shot
  const tokens = (await readFile(tokensFile, 'utf8')).split('\n').slice(first, first + count)
  let next = 0
  const setupRequest = (request: object) => {
    const [, method, path, token = tokens[next], body] = call.exec(tokens[next]!) ?? []
    next = (next + 1) % tokens.length
    const headers = { authorization: `Bearer ${token}`, ...(body && { 'content-type': 'application/json' }) }
    return { ...request, headers, ...(method && { method, path, body }) }
  }
  const result = await autocannon({ url, connections, duration: seconds, requests: [{ setupRequest }] })
  const { requests, duration, errors, timeouts, latency } = result
  return {
    requests: requests.total,
    seconds: duration,
    failed: errors + timeouts,
    notOk: requests.total - result['2xx'],
    p50Ms: latency.p50,
    p99Ms: latency.p99,
  }
}

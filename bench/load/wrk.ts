/** Load from wrk: one of its threads sends more than a Node process can answer. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { wrkScript } from '../paths.ts'
import type { Hit, Shot } from './load.ts'

export async function shootWrk({ url, tokensFile, first, count, connections, seconds }: Shot): Promise<Hit> {
  const running = promisify(execFile)('wrk', [
    '--threads=1',
    // A machine that stalls is not an error: the default of 2 s would fail the run.
    '--timeout=10s',
    `--connections=${connections}`,
    `--duration=${seconds}s`,
    `--script=${wrkScript}`,
    url,
    '--',
    tokensFile,
    String(first),
    String(count),
  ])
  const end = () => running.child.kill()
  process.once('exit', end)
  const { stdout } = await running.finally(() => process.off('exit', end))
  const line = stdout.split('\n').find((one) => one.startsWith('{'))
  if (line === undefined) throw new Error(`wrk printed no result: ${stdout.trim()}`)
  const { requests, us, failed, notOk, p50Us, p99Us } = JSON.parse(line)
  return { requests, seconds: us / 1e6, failed, notOk, p50Ms: p50Us / 1000, p99Ms: p99Us / 1000 }
}

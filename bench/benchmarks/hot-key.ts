/** One key, all connections: the most that the batch can gain. */
import { atLeast, atMost, type Outcome, resultOf } from '../outcome.ts'
import type { Rig } from '../rig.ts'
import { aboveBare, compare, costTargets, howMany, legend } from './compare.ts'

export async function hotKey(rig: Rig): Promise<Outcome> {
  const results = await compare(rig, 'hot_key', 1)
  const { median: ours } = resultOf(results, 'latchkey')
  const { median: bare } = resultOf(results, 'bare')
  const { median: obvious } = resultOf(results, 'obvious')
  return {
    name: 'hot-key',
    title: 'One key',
    tables: [{ title: 'One key', about: `One key, ${howMany}, GET /v1/verify.`, results }],
    targets: [
      ...costTargets(results, 0.9),
      atLeast('throughput, of that of bare', ours.requestsPerS / bare.requestsPerS, 0.85, '×'),
      atMost('script calls per request', ours.scriptCalls, 0.1, ''),
      atLeast(
        'Redis CPU per request of one EVALSHA each (obvious), against latchkey',
        obvious.redisCpuUs / ours.redisCpuUs,
        5,
        '×',
      ),
    ],
    notes: [aboveBare(results), ...legend],
  }
}

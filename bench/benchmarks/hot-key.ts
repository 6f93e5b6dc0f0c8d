/** One key on all connections: the most that batching can gain. */
import { atLeast, atMost, type Outcome } from '../outcome.ts'
import { ratio, resultOf } from '../ratios.ts'
import type { Rig } from '../rig.ts'
import { compare, costTargets, howMany } from './compare.ts'

export async function hotKey(rig: Rig): Promise<Outcome> {
  const { results, ratios, notes } = await compare(rig, 'hot_key', 1)
  return {
    name: 'hot-key',
    title: 'One key',
    tables: [{ title: 'One key', about: `One key, ${howMany}, GET /v1/verify.`, results, ratios }],
    targets: [
      ...costTargets(results, { bareShare: 0.9, limiters: 1.5 }),
      atLeast('throughput, by that of bare', ratio(results, 'requestsPerS', 'latchkey', 'bare'), 0.85, '×'),
      atMost('script calls per request', resultOf(results, 'latchkey').median.scriptCalls, 0.1, ''),
      atLeast(
        'Redis CPU per request with one EVALSHA each (obvious), by that of latchkey',
        ratio(results, 'redisCpuUs', 'obvious', 'latchkey'),
        5,
        '×',
      ),
    ],
    notes,
  }
}

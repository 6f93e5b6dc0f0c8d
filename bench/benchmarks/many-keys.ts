/**
 * A thousand keys in turn: one turn of the event loop then holds about as many keys as requests.
 */
import type { Outcome } from '../outcome.ts'
import type { Rig } from '../rig.ts'
import { compare, costTargets, howMany } from './compare.ts'

const keys = 1000

export async function manyKeys(rig: Rig): Promise<Outcome> {
  const { results, ratios, notes } = await compare(rig, 'many_keys', keys)
  const about = `${keys} keys in turn, ${howMany}, GET /v1/verify. The peers without authentication count by Authorization header.`
  return {
    name: 'many-keys',
    title: 'A thousand keys',
    tables: [{ title: 'A thousand keys', about, results, ratios }],
    targets: costTargets(results, { bareShare: 0.95, limiters: 1.4 }),
    notes,
  }
}

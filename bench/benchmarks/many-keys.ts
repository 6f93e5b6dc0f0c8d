/** A thousand keys in turn: each turn of the event loop then holds about as many keys as requests. */
import type { Outcome } from '../outcome.ts'
import type { Rig } from '../rig.ts'
import { aboveBare, compare, costTargets, howMany, legend } from './compare.ts'

const keys = 1000

export async function manyKeys(rig: Rig): Promise<Outcome> {
  const results = await compare(rig, 'many_keys', keys)
  const about = `${keys} keys in turn, ${howMany}, GET /v1/verify. The peers count by ${keys} values of the Authorization header.`
  return {
    name: 'many-keys',
    title: 'A thousand keys',
    tables: [{ title: 'A thousand keys', about, results }],
    targets: costTargets(results, 0.85),
    notes: [aboveBare(results), ...legend],
  }
}

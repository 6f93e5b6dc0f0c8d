/**
 * Many keys in turn: one turn of the event loop then holds about as many keys as requests. A
 * thousand, and a hundred thousand, each of which is used once in some seconds.
 */
import type { Outcome } from '../outcome.ts'
import { shown } from '../report/columns.ts'
import type { Rig } from '../rig.ts'
import { compare, costTargets, howMany } from './compare.ts'

const of = (keys: number, name: string, title: string, bareShare: number) =>
  async function manyKeys(rig: Rig): Promise<Outcome> {
    const { results, ratios, notes } = await compare(rig, name.replaceAll('-', '_'), keys)
    const about = `${shown(keys, 0)} keys in turn, ${howMany}, GET /v1/verify. The peers without authentication count by Authorization header.`
    return {
      name,
      title,
      tables: [{ title, about, results, ratios }],
      targets: costTargets(results, { bareShare, limiters: 1.4 }),
      notes,
    }
  }

export const manyKeys = of(1000, 'many-keys', 'A thousand keys', 0.95)
export const evenMoreKeys = of(100_000, 'even-more-keys', 'A hundred thousand keys', 0.9)

/**
 * Many keys in turn, so that one turn of the event loop holds about as many keys as requests. Of a
 * hundred thousand, each comes round only after seconds, when its cached copy may have expired.
 */
import type { Outcome } from '../outcome.ts'
import { shown } from '../report/columns.ts'
import type { Rig } from '../rig.ts'
import { compare, costTargets, howMany } from './compare.ts'

const of =
  (keys: number, name: string, title: string, bareShare: number) =>
  async (rig: Rig): Promise<Outcome> => {
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

/**
 * Does a table of a million keys cost more than one of a thousand? Measured with a thousand keys in
 * use, at first use, and in memory.
 */
import { atLeast, atMost, interval, type Outcome, type Table, type Target } from '../outcome.ts'
import { cpuRatio, ratio } from '../ratios.ts'
import { shown } from '../report/columns.ts'
import type { Database, Rig } from '../rig.ts'
import { inRounds, type Result } from '../rounds.ts'
import { type Cold, coldLookUps } from './cold.ts'
import { howMany } from './compare.ts'
import { memory } from './memory.ts'

const small = 1000
const large = 1_000_000
const inUse = 1000
const nameOf = (keys: number) => `${shown(keys, 0)} keys`

export async function growth(rig: Rig): Promise<Outcome> {
  const few = await rig.database('small', small)
  const many = await rig.database('large', large)
  const working = await workingSet(rig, few, many)
  const cold = await coldLookUps(rig, many, { names: ['latchkey', 'obvious'], skip: inUse })
  const held = await memory(rig, many)
  return {
    name: 'growth',
    title: 'A million keys',
    tables: [workingTable(working), coldTable(cold)],
    targets: [
      within10Percent(working),
      atLeast(
        'throughput at first use, by that of obvious',
        ratio(cold.results, 'requestsPerS', 'latchkey', 'obvious'),
        3,
        '×',
      ),
      atMost(
        `peak RSS after ${shown(held.keys, 0)} keys in ${held.seconds.toFixed(0)} s`,
        held.peakMb,
        300,
        'MB',
      ),
    ],
    notes: [
      `Memory: a new process used ${shown(held.keys, 0)} distinct keys in ${held.seconds.toFixed(1)} s. RSS was ${held.startMb.toFixed(0)} MB at the start, ${held.endMb.toFixed(0)} MB at the end and ${held.peakMb.toFixed(0)} MB at its peak.`,
    ],
  }
}

async function workingSet(rig: Rig, few: Database, many: Database): Promise<Result[]> {
  const subjects = []
  for (const database of [few, many]) {
    const one = await rig.start('latchkey', database)
    subjects.push({
      name: nameOf(database.count),
      url: one.url,
      processes: [one],
      tokensFile: database.tokensFile,
      tokens: () => ({ first: 0, count: inUse }),
    })
  }
  const results = await inRounds(rig, subjects)
  await rig.stopCandidates()
  return results
}

const workingTable = (results: Result[]): Table => ({
  title: 'A working set of a thousand keys',
  about: `The same ${shown(inUse, 0)} keys in turn, ${howMany}; ${shown(small, 0)} or ${shown(large, 0)} keys in the database.`,
  results,
  ratios: [cpuRatio(results, nameOf(large), nameOf(small))],
})

const coldTable = ({ results, rounds, seconds }: Cold): Table => ({
  title: 'Each key for the first time',
  about: `No key is used twice, so there are only ${rounds} rounds, of ${seconds} s; ${howMany}, ${shown(large, 0)} keys in the database. Both read every key from Postgres; Latchkey also writes every key’s last use.`,
  results,
  ratios: [cpuRatio(results, 'obvious', 'latchkey')],
})

function within10Percent(results: Result[]): Target {
  const times = ratio(results, 'requestsPerS', nameOf(large), nameOf(small))
  return {
    what: `throughput with ${nameOf(large)}, by that with ${nameOf(small)}`,
    want: 'within ± 10 %',
    got: `${times.median.toFixed(3)} × (${interval(times)})`,
    met: Math.abs(times.median - 1) <= 0.1,
  }
}

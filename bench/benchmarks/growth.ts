/** Whether a table of a million keys costs more than one of a thousand: while a thousand are in use, at first use, in memory. */
import { atLeast, atMost, type Outcome, resultOf, type Target } from '../outcome.ts'
import { shown } from '../report/columns.ts'
import type { Database, Rig } from '../rig.ts'
import { inTurns, type Result } from '../rounds.ts'
import { coldLookUps } from './cold.ts'
import { howMany } from './compare.ts'
import { memory } from './memory.ts'

const small = 1000
const large = 1_000_000
const inUse = 1000

export async function growth(rig: Rig): Promise<Outcome> {
  const few = await rig.database('small', small)
  const many = await rig.database('large', large)
  const working = await workingSet(rig, few, many)
  const cold = await coldLookUps(rig, many, inUse)
  const held = await memory(rig, many)
  const times = resultOf(cold, 'latchkey').median.requestsPerS / resultOf(cold, 'obvious').median.requestsPerS
  return {
    name: 'growth',
    title: 'A million keys',
    tables: [
      {
        title: 'A working set of a thousand keys',
        about: `The same ${shown(inUse, 0)} keys in turn, ${howMany}; ${shown(small, 0)} or ${shown(large, 0)} keys in the database.`,
        results: working,
      },
      {
        title: 'Each key for the first time',
        about: `No key is used twice, ${howMany}; ${shown(large, 0)} keys in the database. Both read every key from Postgres; Latchkey also writes every key’s last use.`,
        results: cold,
      },
    ],
    targets: [
      within10Percent(working),
      atLeast('throughput at first use, of that of obvious', times, 3, '×'),
      atMost(
        `peak RSS after ${shown(held.keys, 0)} keys in ${held.seconds.toFixed(0)} s`,
        held.peakMb,
        300,
        'MB',
      ),
    ],
    notes: [
      `Memory: a new process used ${shown(held.keys, 0)} distinct keys in ${held.seconds.toFixed(1)} s. RSS at the start ${held.startMb.toFixed(0)} MB, at the end ${held.endMb.toFixed(0)} MB, at its highest ${held.peakMb.toFixed(0)} MB.`,
    ],
  }
}

async function workingSet(rig: Rig, few: Database, many: Database): Promise<Result[]> {
  const subjects = []
  for (const database of [few, many]) {
    const one = await rig.start('latchkey', database)
    subjects.push({
      name: `${shown(database.count, 0)} keys`,
      url: one.url,
      processes: [one],
      tokensFile: database.tokensFile,
      tokens: () => ({ first: 0, count: inUse }),
    })
  }
  const results = await inTurns(rig, subjects)
  await rig.stopCandidates()
  return results
}

function within10Percent([few, many]: Result[]): Target {
  const change = many!.median.requestsPerS / few!.median.requestsPerS - 1
  return {
    what: `throughput with ${many!.name}, against ${few!.name}`,
    want: 'within ± 10 %',
    got: `${change < 0 ? '−' : '+'}${Math.abs(change * 100).toFixed(1)} %`,
    met: Math.abs(change) <= 0.1,
  }
}

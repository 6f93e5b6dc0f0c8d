/** Keys nobody has used yet: what the cache cannot help with and the batch can. */
import { measure, type Subject } from '../measure.ts'
import type { Database, Rig } from '../rig.ts'
import { inTurns, type Result } from '../rounds.ts'
import type { CandidateName } from '../servers/candidate.ts'

const names: CandidateName[] = ['latchkey', 'obvious']
/** Of the keys of a round, by the speed of a cold process. Should a key be used twice all the same, the measurement is refused. */
const usedShare = 0.5

/** `skip`: keys at the beginning that were used before. */
export async function coldLookUps(rig: Rig, database: Database, skip: number): Promise<Result[]> {
  // Each measurement has keys of its own, the warm-ups and the trial too.
  const blocks = names.length * (rig.rounds + 2)
  const count = Math.floor((database.count - skip) / blocks)
  const subjects: Subject[] = []
  for (const [i, name] of names.entries()) {
    const candidate = await rig.start(name, database)
    subjects.push({
      name,
      url: candidate.url,
      processes: [candidate],
      tokensFile: database.tokensFile,
      tokens: (round) => ({ first: skip + ((round + 1) * names.length + i) * count, count }),
      onlyOnce: true,
    })
  }
  // Tells for how many seconds the keys of a round are enough.
  let perS = 0
  for (const subject of subjects) perS = Math.max(perS, (await measure(rig, subject, -1, 1)).requestsPerS)
  const seconds = Math.max(1, Math.min(rig.seconds, Math.floor((count * usedShare) / perS)))
  const results = await inTurns(rig, subjects, seconds)
  await rig.stopCandidates()
  return results
}

/** Keys used for the first time: the cache cannot help with them, but batching can. */
import { measure, type Subject } from '../measure.ts'
import type { Database, Rig } from '../rig.ts'
import { inRounds, type Result } from '../rounds.ts'
import { assertSameAnswer } from '../same-answer.ts'
import type { Candidate, CandidateName } from '../servers/candidate.ts'
import { asked } from './compare.ts'

/** Few, because each window needs its own keys. */
const roundsMax = 5
/** Aim to use half of a round's keys. A window that uses a key twice is rejected. */
const usedShare = 0.5

export interface Cold {
  results: Result[]
  rounds: number
  seconds: number
}

interface ColdOptions {
  names: CandidateName[]
  /** Keys at the beginning that were used before. */
  skip?: number
  /** More subjects, which depend on how the candidates did in a trial. */
  beside?(candidates: Candidate[]): Promise<Subject[]>
}

export async function coldLookUps(
  rig: Rig,
  database: Database,
  { names, skip = 0, beside }: ColdOptions,
): Promise<Cold> {
  const rounds = Math.min(rig.rounds, roundsMax)
  // The warm-up and the trial need their own keys too.
  const blocks = names.length * (rounds + 2)
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
  await assertSameAnswer(await Promise.all(subjects.map(asked)))
  // The trial shows for how many seconds the keys of a round last.
  let perS = 0
  for (const subject of subjects) perS = Math.max(perS, (await measure(rig, subject, -1, 1)).requestsPerS)
  const seconds = Math.max(1, Math.min(rig.seconds, Math.floor((count * usedShare) / perS)))
  const others = (await beside?.(subjects.flatMap(({ processes }) => processes))) ?? []
  const results = await inRounds(rig, [...subjects, ...others], { rounds, seconds })
  await rig.stopCandidates()
  return { results, rounds, seconds }
}

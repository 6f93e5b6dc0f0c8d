/**
 * Measures in rounds. Each round has one short window of every subject. All subjects stay up
 * throughout. Noise (another process, a slow minute of the machine) then hits all of them alike, and
 * hardly affects a ratio within one round. The order stays the same, so every subject is idle for
 * equally long before its window: a process that was idle for longer costs more.
 *
 * A process of a program may stay 10 % slower than the next one of the same program: where its
 * memory lies, and what V8 has compiled, differ from start to start. So a comparison of programs
 * starts them several times.
 */
import { measure, type Sample, type Subject } from './measure.ts'
import type { Rig } from './rig.ts'
import { median, quantile } from './statistics.ts'

export interface Result {
  name: string
  median: Sample
  /** The 25th and the 75th percentile. For a cost, the lower one is its best quarter. */
  lowerQuartile: Sample
  upperQuartile: Sample
  /** How many launches the samples come from, equally many of each. */
  launches: number
  /** One sample for each round, launch by launch. */
  samples: Sample[]
}

/** Each with processes of its own. */
const launchesMax = 5

/** By then V8 has compiled the hot code. */
const warmUpS = 3

/** `start`: starts all subjects. Resolves when they are stopped. */
export async function inLaunches(rig: Rig, start: () => Promise<Subject[]>): Promise<Result[]> {
  const launches = Math.min(launchesMax, rig.rounds)
  const rounds = Math.ceil(rig.rounds / launches)
  const samples = new Map<string, Sample[]>()
  for (let launch = 1; launch <= launches; launch++) {
    rig.say(`launch ${launch}/${launches}`)
    const subjects = await start()
    for (const { name } of subjects) if (!samples.has(name)) samples.set(name, [])
    // Reversed in every second launch, so that nobody always follows the same one.
    const inTurn = launch % 2 === 0 ? subjects.toReversed() : subjects
    for (const found of await inRounds(rig, inTurn, { rounds, seconds: rig.seconds }))
      samples.get(found.name)!.push(...found.samples)
    await rig.stopCandidates()
  }
  return [...samples].map(([name, all]) => resultOf(name, all, launches))
}

export async function inRounds(
  rig: Rig,
  subjects: Subject[],
  { rounds, seconds }: { rounds: number; seconds: number } = rig,
): Promise<Result[]> {
  const samples = new Map<string, Sample[]>(subjects.map(({ name }) => [name, []]))
  for (const subject of subjects) {
    rig.say(`${subject.name}: warming up`)
    await measure(rig, subject, 0, subject.onlyOnce ? seconds : warmUpS)
  }
  for (let round = 1; round <= rounds; round++) {
    for (const subject of subjects) {
      const sample = await measure(rig, subject, round, seconds)
      samples.get(subject.name)!.push(sample)
      rig.say(
        `${subject.name} ${round}/${rounds}: ${Math.round(sample.requestsPerS)} req/s, ${sample.cpuUs.toFixed(1)} µs CPU/req`,
      )
    }
  }
  return [...samples].map(([name, all]) => resultOf(name, all))
}

const resultOf = (name: string, samples: Sample[], launches = 1): Result => ({
  name,
  median: across(samples, median),
  lowerQuartile: across(samples, (values) => quantile(values, 0.25)),
  upperQuartile: across(samples, (values) => quantile(values, 0.75)),
  launches,
  samples,
})

/** Summarises each figure separately. */
function across(samples: Sample[], pick: (values: number[]) => number): Sample {
  const figures = Object.keys(samples[0]!) as (keyof Sample)[]
  const picked = figures.map((figure) => {
    const values = samples.map((sample) => sample[figure])
    return [figure, values.includes(null) ? null : pick(values as number[])]
  })
  return Object.fromEntries(picked)
}

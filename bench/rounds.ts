/**
 * Measures in rounds. Each round has one short window of every subject, and starts with a different
 * subject. All subjects stay up throughout. Noise (another process, a slow minute of the machine)
 * then hits all of them alike, and hardly affects a ratio within one round.
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
  /** One sample for each round. */
  samples: Sample[]
}

/** By then V8 has compiled the hot code. */
const warmUpS = 3

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
    const shift = round % subjects.length
    for (const subject of [...subjects.slice(shift), ...subjects.slice(0, shift)]) {
      const sample = await measure(rig, subject, round, seconds)
      samples.get(subject.name)!.push(sample)
      rig.say(
        `${subject.name} ${round}/${rounds}: ${Math.round(sample.requestsPerS)} req/s, ${sample.cpuUs.toFixed(1)} µs CPU/req`,
      )
    }
  }
  return [...samples].map(([name, all]) => ({
    name,
    median: across(all, median),
    lowerQuartile: across(all, (values) => quantile(values, 0.25)),
    upperQuartile: across(all, (values) => quantile(values, 0.75)),
    samples: all,
  }))
}

/** Summarises each figure separately. */
function across(samples: Sample[], pick: (values: number[]) => number): Sample {
  const figures = Object.keys(samples[0]!) as (keyof Sample)[]
  const picked = figures.map((figure) => {
    const values = samples.map((sample) => sample[figure])
    return [figure, values.includes(null) ? null : pick(values as number[])]
  })
  return Object.fromEntries(picked)
}

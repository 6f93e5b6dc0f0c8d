/**
 * Measures in turns: every round measures every subject once, each round beginning with another one. What the machine does
 * meanwhile (another process, a warmer processor) then falls on all of them alike.
 */
import { measure, type Sample, type Subject } from './measure.ts'
import type { Rig } from './rig.ts'
import { median } from './statistics.ts'

export interface Result {
  name: string
  median: Sample
  min: Sample
  max: Sample
  samples: Sample[]
}

/** V8 has compiled what is hot by then; the measured seconds follow in the same process. */
const warmUpS = 3

export async function inTurns(rig: Rig, subjects: Subject[], seconds = rig.seconds): Promise<Result[]> {
  const samples = new Map<string, Sample[]>(subjects.map(({ name }) => [name, []]))
  for (const subject of subjects) {
    rig.say(`${subject.name}: warming up`)
    await measure(rig, subject, 0, subject.onlyOnce ? seconds : warmUpS)
  }
  for (let round = 1; round <= rig.rounds; round++) {
    const shift = round % subjects.length
    for (const subject of [...subjects.slice(shift), ...subjects.slice(0, shift)]) {
      const sample = await measure(rig, subject, round, seconds)
      samples.get(subject.name)!.push(sample)
      rig.say(
        `${subject.name} ${round}/${rig.rounds}: ${Math.round(sample.requestsPerS)} req/s, ${sample.cpuUs.toFixed(1)} µs CPU/req`,
      )
    }
  }
  return [...samples].map(([name, all]) => ({
    name,
    median: across(all, median),
    min: across(all, (values) => Math.min(...values)),
    max: across(all, (values) => Math.max(...values)),
    samples: all,
  }))
}

/** Each figure by itself. */
function across(samples: Sample[], pick: (values: number[]) => number): Sample {
  const figures = Object.keys(samples[0]!) as (keyof Sample)[]
  const picked = figures.map((figure) => {
    const values = samples.map((sample) => sample[figure])
    return [figure, values.includes(null) ? null : pick(values as number[])]
  })
  return Object.fromEntries(picked)
}

// Three instances on virtual time, with servers and networks that fail as a seed decides: no
// promise breaks. SIMULATION_SEED=<seed> repeats one schedule, SIMULATION_RUNS=<n> tries so many.
import { randomInt } from 'node:crypto'
import t from 'tap'
import { recordFigure, scaled, soaking } from '../soak.ts'
import type { Done } from './explore.ts'
import { explore, lanes } from './processes.ts'

const { SIMULATION_SEED: only, SIMULATION_RUNS: runs } = process.env
const schedules = only ? 1 : Number(runs ?? scaled(10_000, 10_000_000))
/** CI tries the same ones each time, the soak others. */
const first = only ? Number(only) : soaking ? randomInt(1_000_000, 2 ** 31) : 1
const progressEvery = 100_000

t.test(`none of ${schedules} schedules breaks a promise`, async (t) => {
  const each = Math.ceil(schedules / lanes)
  const sum = { schedules: 0, requests: 0, changes: 0, faults: 0, broken: 0 }

  function add(done: Done) {
    const before = sum.schedules
    for (const name of Object.keys(done) as (keyof Done)[]) sum[name] += done[name]
    if (Math.floor(sum.schedules / progressEvery) > Math.floor(before / progressEvery))
      t.comment(`progress: ${sum.schedules} of ${schedules} schedules`)
  }
  async function run(lane: number) {
    const from = lane * each
    for await (const outcome of explore(first + from, Math.min(each, schedules - from))) {
      if ('done' in outcome) add(outcome.done)
      if (!('failed' in outcome)) continue
      sum.broken++
      const { seed, wrong, trace } = outcome.failed
      t.fail(`SIMULATION_SEED=${seed}: ${wrong}`, { trace: trace.join('\n') })
    }
  }
  await Promise.all(Array.from({ length: only ? 1 : lanes }, (_, lane) => run(lane)))
  if (sum.broken === 0) t.equal(sum.schedules, schedules)
  recordFigure(t, 'simulation', sum)
})

/**
 * A process that runs schedules, because a simulation replaces the clocks and timers of its process.
 *
 *     explore.ts <first seed> <number of schedules> [<first bug> <number of bugs>]
 *
 * Prints a line of JSON for each failure, each bug, and from time to time for the schedules that
 * broke nothing. Without bugs it ends at the first failure.
 */
import { register } from 'node:module'
import { bugs } from './bugs.ts'
import * as product from './run.ts'
import { type Schedule, scheduleOf } from './schedule.ts'

/** What was run since the last time. */
export interface Done {
  schedules: number
  requests: number
  changes: number
  faults: number
}

export type Outcome =
  | { failed: { seed: number; wrong: string; trace: string[] } }
  | { bug: string; seed: number | null; wrong: string }
  | { done: Done }

const [first, count, firstBug = 0, bugCount = 0] = process.argv.slice(2).map(Number) as [number, number]
const print = (outcome: Outcome) => process.stdout.write(`${JSON.stringify(outcome)}\n`)

const nothing: Done = { schedules: 0, requests: 0, changes: 0, faults: 0 }
const doneEvery = 1000

/** Resolves to the first schedule that breaks a promise. */
async function search({ runSchedule, startSimulating }: typeof product, onDone = (_: Done) => {}) {
  startSimulating()
  let done = { ...nothing }
  for (let seed = first; seed < first + count; seed++) {
    const schedule = scheduleOf(seed)
    const { wrong, requests, changes, faults } = await runSchedule(schedule)
    if (wrong.length > 0) return { schedule, wrong: wrong[0]! }
    done.schedules++
    done.requests += requests
    done.changes += changes
    done.faults += faults
    if (done.schedules < doneEvery && seed < first + count - 1) continue
    onDone(done)
    done = { ...nothing }
  }
  return null
}

const isBroken = async (schedule: Schedule) => (await product.runSchedule(schedule)).wrong.length > 0

/** Leaves out every action without which a promise is still broken. */
async function shrink(schedule: Schedule): Promise<Schedule> {
  let { actions } = schedule
  for (let size = actions.length >> 1; size > 0; size >>= 1)
    for (let from = 0; from < actions.length; ) {
      const fewer = actions.toSpliced(from, size)
      if (await isBroken({ ...schedule, actions: fewer })) actions = fewer
      else from += size
    }
  return { ...schedule, actions }
}

async function explore() {
  const found = await search(product, (done) => print({ done }))
  if (found === null) return
  const smallest = await shrink(found.schedule)
  const trace: string[] = []
  Error.stackTraceLimit = stackTraceLimit
  const { wrong } = await product.runSchedule(smallest, trace)
  print({ failed: { seed: found.schedule.seed, wrong: wrong[0] ?? found.wrong, trace } })
}

async function hunt() {
  register('./mutate.mjs', import.meta.url, { data: bugs })
  for (let i = firstBug; i < Math.min(firstBug + bugCount, bugs.length); i++) {
    const found = await search((await import(`./run.ts?bug=${i}`)) as typeof product)
    print({ bug: bugs[i]!.name, seed: found?.schedule.seed ?? null, wrong: found?.wrong ?? '' })
  }
}

// A fifth of the time goes into the stacks of errors that are expected.
const { stackTraceLimit } = Error
Error.stackTraceLimit = 0
const ended = bugCount === 0 ? explore() : hunt()
await ended.catch((error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
process.exit(0)

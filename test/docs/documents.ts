// Runs the transcripts of a document, each from its first to its last, on a service of its own.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Services } from '../services/index.ts'
import { besideService, inFreshCopy, root } from './surroundings.ts'
import { isAsDocumented, type Names, type Step, stepsOf, translated } from './transcript.ts'

export interface Document {
  name: string
  markdown: string
  steps: Step[]
}

export const documentNames = [
  ...['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md', 'examples/README.md'],
  ...readdirSync(join(root, 'docs')).map((name) => `docs/${name}`),
].filter((name) => name.endsWith('.md'))

const isStart = ({ command }: Step) => command === 'npm ci && npm start'
/** Building takes longer than any command. */
const length = ({ steps }: Document) => (steps.some(isStart) ? Number.POSITIVE_INFINITY : steps.length)

/** All that have transcripts. The longest to run come first. */
export const documents: Document[] = documentNames
  .map((name) => {
    const markdown = readFileSync(join(root, name), 'utf8')
    return { name, markdown, steps: stepsOf(markdown) }
  })
  .filter(({ steps }) => steps.length > 0)
  .sort((one, other) => length(other) - length(one))

/** Programs that not every machine has. */
export const programsOf = ({ steps }: Document) =>
  ['bash', 'curl', 'redis-cli', 'openssl'].filter(
    (program) => program === 'bash' || steps.some(({ command }) => command.includes(program)),
  )

/** What is written into the documents is read by somebody before it is committed. */
const attemptsMax = process.env.UPDATE_DOCS ? 1 : 5
const wholeAttemptsMax = process.env.UPDATE_DOCS ? 1 : 3

export interface Ran {
  step: Step
  actual: string[]
  asDocumented: boolean
}

export interface Run {
  ran: Ran[]
  seen: Names
}

/**
 * Counts start over with the minute, and on a busy machine a minute may be incomplete: then the whole
 * document runs once more. What is wrong in it is wrong each time. Null where this machine lacks a
 * server that it needs.
 */
export async function runUntilAsDocumented(t: Test, services: Services, document: Document) {
  for (let attempt = 1; ; attempt++) {
    const run = await runDocument(t, services, document)
    if (run === null || run.ran.every(({ asDocumented }) => asDocumented)) return run
    if (attempt >= wholeAttemptsMax) return run
  }
}

async function runDocument(t: Test, services: Services, { markdown, steps }: Document): Promise<Run | null> {
  const surroundings = await (steps.some(isStart) ? inFreshCopy(t) : besideService(t, services, markdown))
  if (surroundings === null) return null
  const { shell } = surroundings
  let { seen } = surroundings
  const ran: Ran[] = []
  let repeated: { from: number; seen: Names; left: number } | null = null
  while (ran.length < steps.length) {
    const at = ran.length
    const step = steps[at]!
    if (step.isRepeated) {
      const left: number = repeated?.from === at ? repeated.left - 1 : attemptsMax - 1
      repeated = { from: at, seen: new Map(seen), left }
    } else if (!step.isShown && steps[at - 1]?.isShown) repeated = null
    const command = translated(step.command, seen)
    const actual = await (isStart(step)
      ? shell.start(command, step.output.filter(Boolean).length)
      : shell.run(command))
    const asDocumented = !step.isShown || isAsDocumented(step.output, actual, seen)
    if (asDocumented || repeated === null || repeated.left === 0) ran.push({ step, actual, asDocumented })
    else {
      ran.length = repeated.from
      seen = repeated.seen
    }
  }
  return { ran, seen }
}

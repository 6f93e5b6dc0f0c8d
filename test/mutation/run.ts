/**
 * `npm run mutate [-- FILE…]`: changes the product in one place after the other, and runs its tests
 * against each change, those with servers last. One that no test notices has survived. Prints a
 * score for each file and every survivor; fails if a file has less than 95 %.
 */
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import ts from 'typescript'
import { type Mutant, mutantsOf } from './mutants.ts'
import { sourcesIn, testsOf } from './tests-of.ts'

const root = resolve(import.meta.dirname, '../..')
const folders = ['src/rules', 'src/guard', 'src/redis', 'plugins']
const wantedPercent = 95
/** What a test may take, by what it takes without a mutant, which may never end. */
const limitMs = (tookMs: number) => Math.round(5000 + 10 * tookMs)

/** Mutants that behave as the original does, each with its line of the source and the reason. */
const equivalent: { file: string; source: string; change: string; why: string }[] = JSON.parse(
  await readFile(join(import.meta.dirname, 'equivalent.json'), 'utf8'),
)
const compilerOptions: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2023,
  module: ts.ModuleKind.ESNext,
  verbatimModuleSyntax: true,
}
const folder = await mkdtemp(join(tmpdir(), 'mutants-'))
const loaders = ['test/run/typescript.mjs', 'test/mutation/loader.mjs'].map((path) => `--import=./${path}`)

/** A file of the product, and how long each of its tests takes, milliseconds. */
interface Subject {
  file: string
  source: string
  tests: Map<string, number>
}

interface Trial {
  /** Takes the place of `file`. */
  program: string
  file: string
  /** 0: none. */
  timeout: number
}

let trials = 0

function passes(test: string, { program, file, timeout }: Trial): Promise<boolean> {
  const env = {
    ...process.env,
    // Says to test/services that the servers end with this process.
    TAP: '1',
    TAP_BAIL: '1',
    TAP_TIMEOUT: '1200',
    // A key space of its own: tests would also see what the one before has counted.
    TOGETHER_ID: `${trials++}`,
    MUTANT_URL: pathToFileURL(join(root, file)).href,
    MUTANT_JS: program,
  }
  const options = { cwd: root, env, timeout, killSignal: 'SIGKILL', maxBuffer: 2 ** 28 } as const
  return new Promise((done) => {
    execFile(process.execPath, [...loaders, test], options, (error) => done(error === null))
  })
}

async function compiled(text: string, lane: number): Promise<string> {
  const program = join(folder, `${lane}.js`)
  await writeFile(program, ts.transpileModule(text, { compilerOptions }).outputText)
  return program
}

async function subjectOf(file: string): Promise<Subject> {
  const source = await readFile(join(root, file), 'utf8')
  const program = await compiled(source, 0)
  const tests = new Map<string, number>()
  for (const test of await testsOf(root, file)) {
    const startMs = performance.now()
    if (!(await passes(test, { program, file, timeout: 0 })))
      throw new Error(`${test} fails without any change`)
    tests.set(test, performance.now() - startMs)
  }
  return { file, source, tests }
}

async function survives({ file, source, tests }: Subject, mutant: Mutant, lane: number) {
  const text = source.slice(0, mutant.start) + mutant.replacement + source.slice(mutant.end)
  const program = await compiled(text, lane)
  for (const [test, tookMs] of tests)
    if (!(await passes(test, { program, file, timeout: limitMs(tookMs) }))) return false
  return true
}

/** Tries all mutants of the file, as many at once as there are cores. Returns its share of noticed ones. */
async function tryFile(file: string): Promise<number> {
  const subject = await subjectOf(file)
  const { source, tests } = subject
  const lines = source.split('\n')
  const isEquivalent = ({ line, change }: Mutant) =>
    equivalent.some(
      (known) => known.file === file && known.source === lines[line - 1]!.trim() && known.change === change,
    )
  const mutants = mutantsOf(file, source).filter((mutant) => !isEquivalent(mutant))
  const waiting = [...mutants]
  const survivors: Mutant[] = []
  async function tryNext(lane: number) {
    for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
      if (!(await survives(subject, mutant, lane))) continue
      survivors.push(mutant)
      console.log(`${file}:${mutant.line}  ${mutant.change}`)
    }
  }
  await Promise.all(Array.from({ length: availableParallelism() }, (_, lane) => tryNext(lane)))
  const percent = mutants.length === 0 ? 100 : 100 * (1 - survivors.length / mutants.length)
  console.log(`${file}: ${percent.toFixed(0)} % of ${mutants.length} noticed by ${tests.size} test files\n`)
  return percent
}

const given = process.argv.slice(2).map((path) => relative(root, resolve(path)))
const files = given.length > 0 ? given : (await Promise.all(folders.map((f) => sourcesIn(root, f)))).flat()
const low: string[] = []
for (const file of files) if ((await tryFile(file)) < wantedPercent) low.push(file)
await rm(folder, { recursive: true })
if (low.length > 0) {
  console.error(`Below ${wantedPercent} %: ${low.join(', ')}`)
  process.exitCode = 1
}

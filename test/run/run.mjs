/**
 * `npm test`: runs tap, and fails the run where a file has not reported. tap stops after as many
 * results as there are files, but reports a file that timed out twice, so each timeout silently
 * hides another file's result.
 *
 * Files that fail are run once more, one at a time. If they then pass, the run passes and says so
 * at its end.
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'

/** A failed assertion with what TAP says about it. What holds others has its duration behind it. */
const failure = /^ *not ok (?!.*# time=).*(\n +---\n[\s\S]*?\n +\.\.\.$)?/gm

/** More failures than this are no accident. */
const againMax = 5

const args = process.argv.slice(2)
const { stdout: listed } = await promisify(execFile)('tap', ['list', ...args])
const files = listed.trim().split('\n')

// For a person at a terminal tap writes a report instead of TAP; then TAP goes to a file beside.
const file = `.tap/run-${process.pid}.tap`
const reporter = args.find((arg) => arg.startsWith('--reporter='))
const forPerson = reporter ? reporter !== '--reporter=tap' : process.stdout.isTTY

let tap
let isStopped = false
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.on(signal, () => {
    isStopped = true
    // A terminal sends Ctrl-C to both: tap ends its tests, and then so do we.
    if (signal !== 'SIGINT') tap.kill(signal)
  })

const first = await run(...args)
process.exitCode = first.code
// Among thousands of lines that passed nobody finds the one that did not.
if (first.failures.length > 0) fail('These have failed:', ...first.failures)
const missing = files.filter((file) => !first.reported.has(file))
if (missing.length > 0) fail(`${missing.length} of ${files.length} files have not reported:`, ...missing)

const unclear = [...first.failed, ...missing]
if (!isStopped && files.length > 1 && unclear.length > 0 && unclear.length <= againMax) {
  console.error('Running these again, one at a time:\n ', unclear.join('\n  '))
  const options = args.filter((arg) => arg.startsWith('-'))
  const second = await run(...options, '--jobs=1', ...unclear)
  if (second.failures.length > 0) fail('These have failed again:', ...second.failures)
  else if (second.code === 0 && unclear.every((file) => second.reported.has(file))) {
    console.error('All of these now pass. Please look into why they did not at first.')
    process.exitCode = 0
  }
}

/** Runs tap to its end and gathers what it reports. */
async function run(...words) {
  tap = spawn('tap', ['run', ...words, ...(forPerson ? [`--output-file=${file}`] : [])], {
    stdio: ['inherit', forPerson ? 'inherit' : 'pipe', 'inherit'],
    // tap asks for the state of all files at once and starts each when it has it. With one thread
    // they start in their order, and the long ones come first. package.json sets it back for them.
    env: { ...process.env, UV_THREADPOOL_SIZE: '1' },
  })
  let results = ''
  tap.stdout?.setEncoding('utf8').on('data', (text) => {
    results += text
  })
  tap.stdout?.pipe(process.stdout, { end: false })
  const [code] = await once(tap, 'close')
  if (forPerson) {
    results = await readFile(file, 'utf8')
    await rm(file)
  }
  await serversGone()
  return {
    code: code ?? 1,
    failures: results.match(failure) ?? [],
    // tap's own `timeout!` is no file.
    failed: (results.match(/(?<=^not ok \d+ - )\S+/gm) ?? []).filter((name) => files.includes(name)),
    reported: new Set(results.match(/(?<=^(not )?ok \d+ - )\S+/gm)),
  }
}

function fail(...lines) {
  console.error(lines.join('\n  '))
  process.exitCode = 1
}

/** Their keeper ends them after tap. */
async function serversGone() {
  const untilMs = performance.now() + 60_000
  while (existsSync(`.tap/services/run-${tap.pid}.json`)) {
    if (performance.now() > untilMs) throw new Error('The servers of the tests have not ended.')
    await pause(50)
  }
}

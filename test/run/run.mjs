/**
 * `npm test`: runs tap, and fails the run where a file has not reported. tap ends at as many
 * results as there are files and has two for one that timed out: with each of those the result of
 * another file is lost, and nothing says so.
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'

/** A failed assertion with what TAP says about it. What holds others has its duration behind it. */
const failure = /^ *not ok (?!.*# time=).*(\n +---\n[\s\S]*?\n +\.\.\.$)?/gm

const args = process.argv.slice(2)
const { stdout: listed } = await promisify(execFile)('tap', ['list', ...args])
const files = listed.trim().split('\n')

// For a person at a terminal tap writes a report instead of TAP; then TAP goes to a file beside.
const file = `.tap/run-${process.pid}.tap`
const reporter = args.find((arg) => arg.startsWith('--reporter='))
const forPerson = reporter ? reporter !== '--reporter=tap' : process.stdout.isTTY
const tap = spawn('tap', ['run', ...args, ...(forPerson ? [`--output-file=${file}`] : [])], {
  stdio: ['inherit', forPerson ? 'inherit' : 'pipe', 'inherit'],
})
let results = ''
tap.stdout?.setEncoding('utf8').on('data', (text) => {
  results += text
})
tap.stdout?.pipe(process.stdout)
// A terminal sends Ctrl-C to both: tap ends its tests, and then so do we.
process.on('SIGINT', () => {})
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => tap.kill(signal))
const [code] = await once(tap, 'close')
process.exitCode = code ?? 1

if (forPerson) {
  results = await readFile(file, 'utf8')
  await rm(file)
}
// Among thousands of lines that passed nobody finds the one that did not.
const failures = results.match(failure) ?? []
if (failures.length > 0) fail('These have failed:', ...failures)
const reported = new Set(results.match(/(?<=^(not )?ok \d+ - )\S+/gm))
const missing = files.filter((file) => !reported.has(file))
if (missing.length > 0) fail(`${missing.length} of ${files.length} files have not reported:`, ...missing)
await serversGone()

function fail(...lines) {
  console.error(lines.join('\n  '))
  process.exitCode = 1
}

/** Their keeper ends them after tap. */
async function serversGone() {
  const untilMs = performance.now() + 60_000
  while (existsSync(`.tap/services/run-${tap.pid}.json`)) {
    if (performance.now() > untilMs) return fail('The servers of the tests have not ended.')
    await pause(50)
  }
}

// tap's `before`: starts the keeper of this run's servers, waits until they answer, says which they are.
import { spawn } from 'node:child_process'
import { mkdirSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { stateFolder } from './folders.ts'
import type { Report } from './keeper.ts'

const keeper = fileURLToPath(new URL('./keeper.ts', import.meta.url))

mkdirSync(stateFolder, { recursive: true })
const log = join(stateFolder, 'keeper.log')
const out = openSync(log, 'a')
// Detached: Ctrl-C goes to a terminal's whole foreground group, and the keeper has to outlive it. The same
// execArgv: tap's TypeScript loader is in it.
const child = spawn(process.execPath, [...process.execArgv, keeper, String(process.ppid)], {
  detached: true,
  // tap's processinfo would count the keeper's coverage although the run has none.
  env: { ...process.env, _TAPJS_PROCESSINFO_COVERAGE_: '0' },
  stdio: ['ignore', out, out, 'ipc'],
})

const report = await new Promise<Report>((resolve) => {
  child.once('message', (message) => resolve(message as Report))
  child.once('error', (error) => resolve({ failed: error.message }))
  child.once('exit', () => resolve({ failed: `the keeper of the test services ended; see ${log}` }))
})

// On stderr, so that TAP on stdout stays TAP.
if ('ready' in report) {
  console.error(report.ready)
  child.unref()
} else {
  console.error(`no services for the tests: ${report.failed}`)
  process.exitCode = 1
}

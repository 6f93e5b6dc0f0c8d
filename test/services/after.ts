// tap's `after`: has the keeper end this run's servers, and waits for it, so that a finished run leaves nothing behind.
import { readHandOver } from './hand-over.ts'
import { send, waitUntilGone } from './processes.ts'

const handOver = await readHandOver(process.ppid)
if (handOver) {
  send([handOver.keeper], 'SIGTERM')
  if (!(await waitUntilGone([handOver.keeper], 20_000))) {
    console.error(`the test services did not end; process ${handOver.keeper} keeps them`)
    process.exitCode = 1
  }
}

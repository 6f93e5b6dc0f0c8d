// Keeps a run's servers, which the test file that has them started does not outlive. Ends them when the runner is gone, however
// it went.
import { randomBytes } from 'node:crypto'
import { isAlive } from '../../src/embedded/processes.ts'
import { removeHandOver, removeStaleHandOvers, writeHandOver } from './hand-over.ts'
import { sweep } from './ledger.ts'
import { firstLine } from './sources.ts'
import { type StartedServices, startServices } from './start-services.ts'

const lookMs = 200

const runner = Number(process.argv[2])
const run = randomBytes(4).toString('hex')
let services: StartedServices | undefined
let ending = false

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => void end())

try {
  await removeStaleHandOvers()
  services = await startServices(run)
} catch (cause) {
  await writeHandOver(runner, { failed: firstLine(cause) })
  process.exit(1)
}
const { line, postgresUrl, redisUrl, redisDatabases } = services
await writeHandOver(runner, { run, postgresUrl, redisUrl, redisDatabases })
// Nobody listens any more when the run was ended during the start.
if (process.connected) process.send?.(line, () => process.disconnect())
await watch()
await end()

/** Meanwhile ends private servers whose test was killed. */
async function watch(): Promise<void> {
  while (!ending && isAlive(runner)) {
    await sweep()
    await new Promise((resolve) => setTimeout(resolve, lookMs))
  }
}

async function end(): Promise<void> {
  if (ending) return
  ending = true
  await services?.stop()
  await removeHandOver(runner)
  await sweep()
  process.exit()
}

// Keeps a run's servers: tap's `before` script must exit before the tests start, so what it starts needs a keeper. Ends
// them when the `after` script says so (SIGTERM), or when the runner is gone, however it went.
import { randomBytes } from 'node:crypto'
import { isAlive } from '../../src/embedded/processes.ts'
import { removeHandOver, removeStaleHandOvers, writeHandOver } from './hand-over.ts'
import { sweep } from './ledger.ts'
import { firstLine } from './sources.ts'
import { type StartedServices, startServices } from './start-services.ts'

/** What the keeper tells the `before` script. */
export type Report = { ready: string } | { failed: string }

const lookMs = 500

const runner = Number(process.argv[2])
const run = randomBytes(4).toString('hex')
let services: StartedServices | undefined
let ending = false

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => void end())

try {
  await removeStaleHandOvers()
  services = await startServices(run)
  const { line, postgresUrl, redisUrl, redisDatabases } = services
  await writeHandOver(runner, { run, keeper: process.pid, postgresUrl, redisUrl, redisDatabases })
  tell({ ready: line })
  await watch()
} catch (cause) {
  tell({ failed: firstLine(cause) })
  process.exitCode = 1
}
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

function tell(report: Report): void {
  // Nobody listens any more when the run was ended during the start.
  if (process.connected) process.send?.(report, () => process.disconnect())
}

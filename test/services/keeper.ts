// Keeps a run's servers and ends them when the runner is gone, however it ended.
import { randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { isAlive } from '../../src/embedded/processes.ts'
import { stateFolder } from './folders.ts'
import { sweep } from './ledger.ts'
import { removeHandOver, writeHandOver } from './run-services.ts'
import { firstLine, type StartedServices, startServices } from './sources.ts'

const lookEveryMs = 200

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
// Nobody listens if the run ended during the start.
if (process.connected) process.send?.(line, () => process.disconnect())
while (!ending && isAlive(runner)) {
  // Ends private servers whose test was killed.
  await sweep()
  await pause(lookEveryMs)
}
await end()

/** Of runs whose keeper was killed. */
async function removeStaleHandOvers(): Promise<void> {
  for (const name of await readdir(stateFolder)) {
    const runner = Number(/^run-(\d+)/.exec(name)?.[1] ?? process.pid)
    if (!isAlive(runner)) await removeHandOver(runner)
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

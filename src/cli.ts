#!/usr/bin/env node
/**
 * The executable: checks Node's version before it loads anything an old Node could not parse. Keep
 * to old syntax here.
 */
import { constants } from 'node:os'
import { nodeRange, version } from './version.ts'

const numbers = (text: string) => text.replace(/^\D+/, '').split('.').map(Number)
const [runningMajor = 0, runningMinor = 0] = numbers(process.versions.node)

const isSupported = nodeRange.split(' || ').some((range) => {
  const [major = 0, minor = 0] = numbers(range)
  return runningMajor === major ? runningMinor >= minor : runningMajor > major && range[0] === '>'
})

if (!isSupported) {
  process.stderr.write(
    `latchkey: Latchkey ${version} needs Node ${nodeRange}, and this is ${process.versions.node}\n`,
  )
  process.exitCode = 1
} else {
  if (process.pid === 1) endAtSignals()
  import('./commands/main.ts')
}

/**
 * As the first process of a container: Linux ignores a signal to it that has no listener. Ends it as
 * that signal ends any other process, unless a command listens.
 */
function endAtSignals() {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const)
    process.on(signal, () => {
      if (process.listenerCount(signal) === 1) process.exit(128 + constants.signals[signal])
    })
}

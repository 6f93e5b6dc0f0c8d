#!/usr/bin/env node
/** The executable: checks the version of Node before it loads anything that an old Node could not parse. Keep to old syntax here. */
import { nodeRange, version } from './version.ts'

const numbers = (text: string) => text.replace('>=', '').split('.').map(Number)
const [major = 0, minor = 0] = numbers(nodeRange)
const [runningMajor = 0, runningMinor = 0] = numbers(process.versions.node)

if (runningMajor < major || (runningMajor === major && runningMinor < minor)) {
  process.stderr.write(
    `latchkey: Latchkey ${version} needs Node ${nodeRange}, and this is ${process.versions.node}\n`,
  )
  process.exitCode = 1
} else {
  import('./commands/main.ts')
}

/**
 * CPU time of a server with several processes: the first one, its children, and those that have
 * ended. Linux only.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'

/** The unit of CPU time in /proc/PID/stat, whatever the kernel's own tick is. */
const tickUs = 10_000

/**
 * `schedstat` has the process's own time in nanoseconds; a tick is too coarse for a short window.
 * It covers the main thread only, but Postgres has no others. `stat` has the parent and, for ended
 * children, their page faults and time, after the name, which may contain blanks and brackets.
 */
function timesOf(pid: number) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const [ownNs] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')
  return {
    parent: Number(fields[1]),
    ownUs: Number(ownNs) / 1000,
    endedFaults: Number(fields[8]),
    endedUs: (Number(fields[13]) + Number(fields[14])) * tickUs,
  }
}

export function processTreeCpuUs(root: number): number | null {
  if (!existsSync('/proc/self/schedstat')) return null
  const { ownUs, endedUs, endedFaults } = timesOf(root)
  let sumUs = ownUs + endedUs
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const child = timesOf(Number(name))
      if (child.parent === root) sumUs += child.ownUs
    } catch {} // it has just ended
  }
  // A child that ended meanwhile may be in neither sum. Every process has page faults, even one that
  // took less than a tick.
  return timesOf(root).endedFaults === endedFaults ? sumUs : processTreeCpuUs(root)
}

/** What a server of many processes has used: itself, its children, and those of them that have ended. Linux only. */
import { readdirSync, readFileSync } from 'node:fs'

/** Linux tells processor time in these, whatever the kernel's own tick is. */
const tickUs = 10_000

/** utime, stime, and what ended children used, in ticks; the fields after the name, which may hold blanks and brackets. */
function statOf(pid: number) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  return { parent: fields[1]!, own: fields[11]! + fields[12]!, ended: fields[13]! + fields[14]! }
}

export function processTreeCpuUs(root: number): number | null {
  if (process.platform !== 'linux') return null
  const { own, ended } = statOf(root)
  let ticks = own + ended
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const child = statOf(Number(name))
      if (child.parent === root) ticks += child.own
    } catch {} // ended meanwhile
  }
  return ticks * tickUs
}

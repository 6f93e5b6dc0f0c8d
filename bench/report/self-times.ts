/**
 * Adds up a .cpuprofile: the share of the busy time spent in each module's and each function's own
 * code.
 */
export interface CpuProfile {
  nodes: { id: number; callFrame: { functionName: string; url: string; lineNumber: number } }[]
  /** The node that was running, and the microseconds since the previous sample. */
  samples: number[]
  timeDeltas: number[]
}

interface SelfTimes {
  modules: Map<string, number>
  functions: Map<string, number>
}

/** `skipUs`: how much to leave out at the beginning, for start and warm-up. */
export function selfTimes({ nodes, samples, timeDeltas }: CpuProfile, skipUs: number): SelfTimes {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]))
  const modules = new Map<string, number>()
  const functions = new Map<string, number>()
  let atUs = 0
  let busyUs = 0
  samples.forEach((id, i) => {
    const { functionName, url, lineNumber } = frames.get(id)!
    const us = timeDeltas[i]!
    atUs += us
    if (atUs < skipUs || functionName === '(idle)') return
    busyUs += us
    const module = moduleOf(url, functionName)
    add(modules, module, us)
    add(
      functions,
      url === '' ? functionName : `${functionName || '(anonymous)'}  ${fileOf(url)}:${lineNumber + 1}`,
      us,
    )
  })
  for (const sums of [modules, functions]) for (const [name, us] of sums) sums.set(name, us / busyUs)
  return { modules, functions }
}

const add = (sums: Map<string, number>, name: string, us: number) =>
  sums.set(name, (sums.get(name) ?? 0) + us)

/** A package, a part of Node, a file of ours, or V8's own work, such as garbage collection. */
function moduleOf(url: string, functionName: string): string {
  // Written in C++: sockets, the HTTP parser, hashes.
  if (url === '') return functionName.startsWith('(') ? functionName : 'native code'
  return /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1] ?? fileOf(url)
}

const fileOf = (url: string) => url.replace(/^.*\/(node_modules|dist)\//, '')

/** Where the time goes: Latchkey under V8's sampling profiler, with one key and 64 connections. */
import { mkdtemp, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { connections } from './measure.ts'
import { type CpuProfile, selfTimes } from './report/self-times.ts'
import type { Rig } from './rig.ts'

const warmUpS = 3
const profiledS = 8
const rowsMax = 25

export async function profile(rig: Rig): Promise<void> {
  const folder = await mkdtemp(join(rig.folder, 'profile-'))
  const database = await rig.database('profile', 1)
  const startedMs = performance.now()
  const one = await rig.start('latchkey', database, {
    nodeArgs: ['--cpu-prof', `--cpu-prof-dir=${folder}`],
  })
  const shoot = (seconds: number) =>
    rig.load.shoot({
      url: `${one.url}/v1/verify`,
      tokensFile: database.tokensFile,
      first: 0,
      count: 1,
      connections,
      seconds,
    })
  await shoot(warmUpS)
  const skipUs = (performance.now() - startedMs) * 1000
  const before = await one.usage()
  const { requests } = await shoot(profiledS)
  const cpuUs = ((await one.usage()).cpuUs - before.cpuUs) / requests
  // Node writes the profile when it exits.
  await rig.stopCandidates()
  const [file] = await readdir(folder)
  if (file === undefined) throw new Error('node wrote no profile')
  const written = JSON.parse(await readFile(join(folder, file), 'utf8')) as CpuProfile
  const { modules, functions } = selfTimes(written, skipUs)
  print(
    `${cpuUs.toFixed(1)} µs CPU per request, with the profiler running. Shares are of the time the main thread was not idle.`,
  )
  table('by module', modules)
  table('by function', functions)
}

const print = (line: string) => process.stdout.write(`${line}\n`)

function table(title: string, shares: Map<string, number>) {
  print(`\nself time ${title}\n`)
  for (const [name, share] of [...shares].sort(([, a], [, b]) => b - a).slice(0, rowsMax)) {
    print(`${(share * 100).toFixed(1).padStart(6)} %  ${name}`)
  }
}

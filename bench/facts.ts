/**
 * The machine and software that the figures were taken on. Without these facts they mean nothing.
 */
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus, release, totalmem } from 'node:os'
import type { Outcome } from './outcome.ts'
import type { Rig } from './rig.ts'

export interface Facts {
  date: string
  machine: string
  system: string
  node: string
  redis: string
  postgres: string
  load: string
  rounds: number
  seconds: number
}

export const readFacts = ({ redis, postgres, load, seconds }: Rig, { tables }: Outcome): Facts => ({
  date: new Date().toISOString().slice(0, 16).replace('T', ' '),
  machine: `${availableParallelism()} cores of ${processor()}, ${Math.round(totalmem() / 1024 ** 3)} GB`,
  // The rest of the release names a build of one provider.
  system: `${process.platform} ${/^\d+\.\d+/.exec(release())?.[0] ?? release()} ${process.arch}`,
  node: process.version,
  redis: redis.version,
  postgres: postgres.version,
  load: load.name,
  // Launches round --rounds up.
  rounds: Math.max(...tables.flatMap(({ results }) => results.map(({ samples }) => samples.length))),
  seconds,
})

/**
 * A virtual machine often names only the make, "AMD EPYC": family and model tell the generations
 * apart.
 */
function processor(): string {
  const { model = 'an unknown processor' } = cpus()[0] ?? {}
  if (process.platform !== 'linux') return model
  const text = readFileSync('/proc/cpuinfo', 'utf8')
  const details = ['cpu family', 'model', 'cpu MHz'].flatMap((field) => {
    const value = new RegExp(`^${field}\\s*: (\\S+)`, 'm').exec(text)?.[1]
    return value === undefined ? [] : [`${field} ${value}`]
  })
  return details.length === 0 ? model : `${model} (${details.join(', ')})`
}

/** On what the figures were taken: they say nothing without it. */
import { availableParallelism, cpus, release, totalmem } from 'node:os'
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

export const readFacts = ({ redis, postgres, load, rounds, seconds }: Rig): Facts => ({
  date: new Date().toISOString().slice(0, 16).replace('T', ' '),
  machine: `${availableParallelism()} cores, ${cpus()[0]?.model ?? 'unknown processor'}, ${Math.round(totalmem() / 1024 ** 3)} GB`,
  system: `${process.platform} ${release()} ${process.arch}`,
  node: process.version,
  redis: redis.version,
  postgres: postgres.version,
  load: load.name,
  rounds,
  seconds,
})

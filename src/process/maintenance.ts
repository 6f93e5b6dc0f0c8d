/**
 * Maintains the partitions of the audit log and of usage, once at the start and then every hour.
 */
import type { Stores } from '../wiring/stores.ts'
import type { Lines } from './log.ts'

const everyMs = 3_600_000

/**
 * Resolves after the first round, with a function that stops the others. Never rejects: a failure
 * is logged.
 */
export async function startMaintenance({ maintain }: Pick<Stores, 'maintain'>, log: Lines) {
  const round = () =>
    maintain().then(
      (dropped) => {
        if (dropped.length > 0) log.info({ partitions: dropped }, 'partitions past their retention dropped')
      },
      (error) => log.error({ err: error }, 'partition maintenance failed; will be tried again'),
    )
  const timer = setInterval(round, everyMs)
  timer.unref()
  await round()
  return () => clearInterval(timer)
}

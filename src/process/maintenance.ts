/**
 * Maintains the partitions of the audit log and of usage, once at the start and then every hour, and
 * creates missing ones as soon as a row needs one.
 */
import type { Stores } from '../wiring/stores.ts'
import type { Lines } from './log.ts'

const everyMs = 3_600_000
/** Every refusal fails while a partition is missing, and each asks for it. */
const createEveryMs = 10_000

/**
 * Resolves when the partitions of the coming days are there; dropping old ones may take long. Never
 * rejects: a failure is logged.
 */
export async function startMaintenance(stores: Pick<Stores, 'maintain' | 'createPartitions'>, log: Lines) {
  let isStopped = false
  function onFault({ message: reason }: Error) {
    if (!isStopped) log.error({ reason }, 'partition maintenance failed; will be tried again')
  }
  const onDropped = (partitions: string[]) =>
    log.info({ partitions }, 'partitions past their retention dropped')
  const round = () => void stores.maintain(onDropped).catch(onFault)
  let createdAtMs = -createEveryMs
  const timer = setInterval(round, everyMs)
  timer.unref()
  await stores.createPartitions().catch(onFault)
  round()
  return {
    /**
     * The hourly round is not enough: its timer stands still while the machine sleeps, and the clock
     * of Postgres may jump. Drops nothing, because that clock may be wrong.
     */
    createPartitions() {
      if (performance.now() - createdAtMs < createEveryMs) return
      createdAtMs = performance.now()
      stores.createPartitions().then(() => log.warn('missing partitions created'), onFault)
    },
    stop() {
      isStopped = true
      clearInterval(timer)
    },
  }
}

/** Follows the audit log, like `tail -f`, until it is stopped. */
import { setTimeout as pause } from 'node:timers/promises'
import { auditEvents } from '../../schemas/bounds.ts'
import { type AuditEntry, type AuditFilter, type AuditLog, Unavailable } from '../stores.ts'
import { orStopped, untilStopped } from './until-stopped.ts'

const pollMs = 1000
/**
 * An entry is dated when it is written, but visible only once its change has committed. That may take
 * as long as the pool allows an operator (30 s), so each poll reads the last seconds again.
 */
const overlapS = 35
/** Read of each event in one poll. More in a second is a flood, which nobody reads line by line. */
const entriesMax = 2000

const warn = (line: string) => process.stderr.write(`latchkey: ${line}\n`)

/**
 * `show` gets entries oldest first: the latest `filter.limit`, then each new one once. Outages of
 * Postgres are waited out.
 */
export async function followAudit(
  audit: Pick<AuditLog, 'list' | 'now'>,
  filter: AuditFilter,
  show: (entries: AuditEntry[]) => void,
): Promise<void> {
  const stopped = untilStopped()
  await orStopped(follow(audit, filter, show, stopped), stopped)
}

async function follow(
  audit: Pick<AuditLog, 'list' | 'now'>,
  filter: AuditFilter,
  show: (entries: AuditEntry[]) => void,
  stopped: AbortSignal,
): Promise<void> {
  const latest = async () => {
    const [newest] = await audit.list({ limit: 1 })
    // An entry is ahead of the clock if that was set back, or another server has taken over.
    return newest === undefined ? 0 : Math.min(Date.parse(newest.occurred_at), await audit.now())
  }
  /** The time of the newest entry, whatever the filter, by the database's clock; not in the future. */
  let markMs = await latest()
  const sinceMark = () => Math.max(filter.since ?? 0, markMs / 1000 - overlapS)
  /** With a limit for each event, so that a flood of refusals hides no change that commits late. */
  const recent = () => audit.list({ ...filter, since: sinceMark(), limit: entriesMax, limitsEach: true })

  // In this order, so that an entry written in between is shown exactly once.
  const before = await recent()
  const first = await audit.list(filter)
  show(first.toReversed())
  let seen = new Set([...before, ...first].map(({ id }) => id))

  async function poll() {
    const nextMs = await latest()
    const found = await recent()
    const fresh = found.filter(({ id }) => !seen.has(id))
    if (auditEvents.some((name) => fresh.filter(({ event }) => event === name).length >= entriesMax))
      warn(`more than ${entriesMax} new entries of one event; older ones are left out`)
    show(fresh.reverse())
    seen = new Set(found.map(({ id }) => id))
    markMs = nextMs
  }

  let isDown = false
  const patientPoll = () =>
    poll().then(
      () => {
        if (isDown) warn('Postgres is back')
        isDown = false
      },
      (error) => {
        if (!(error instanceof Unavailable)) throw error
        if (!isDown && !stopped.aborted) warn(`${error.message}; trying again until it is back`)
        isDown = true
      },
    )

  while (!stopped.aborted) {
    await pause(pollMs, undefined, { signal: stopped }).catch(() => {})
    if (!stopped.aborted) await patientPoll()
  }
}

/**
 * Decides how long this instance may go on with cached keys while Postgres is down, so that a
 * change which Redis has not confirmed cannot be missed.
 *
 * The instance that makes such a change raises a fence: a number in Postgres, higher than any
 * before. Each instance reports itself there once a second. It learns the latest fence from the
 * reply, and sends it back with its next report. From the moment it first sends a fence, it never
 * goes on with a copy that it read earlier. So once every instance has reported the fence, no copy
 * read before the change will outlive KEY_CACHE_SECONDS.
 *
 * An instance that has not managed to report for OUTAGE_CACHE_SECONDS may not go on at all, so
 * others need not wait for it any longer. It then starts over: it must learn a fence first.
 */

export interface OldCopies {
  /** Plain fields, read for each hit. On this process's monotonic clock, in milliseconds. */
  readonly allowed: {
    /** A copy read before this is not used beyond KEY_CACHE_SECONDS. */
    fromMs: number
    /** Nor is any copy after this. */
    untilMs: number
  }
  /** Sends a report with this instance's current fence; `send` resolves to the latest one. */
  report(send: (fence: number) => Promise<number>): Promise<void>
  /** The latest fence has not been reported yet. */
  isBehind(): boolean
  /** No copy is used until another report is acknowledged: the last one is older than it seems. */
  startOver(): void
}

/** `outageTtlMs`: how long an instance may go on after its last report. */
export function createOldCopies(outageTtlMs: number): OldCopies {
  const allowed = { fromMs: Infinity, untilMs: 0 }
  let learned: number | null = null
  let sent: number | null = null
  /** Until then, the others wait for this instance. */
  let countedUntilMs = 0
  /** Without any time to go on, there is nothing to start over. */
  const isLate = () => outageTtlMs > 0 && performance.now() >= countedUntilMs

  function startOver() {
    learned = null
    sent = null
    allowed.untilMs = 0
  }

  return {
    allowed,
    startOver,
    isBehind: () => learned !== sent,
    async report(send) {
      const sentAtMs = performance.now()
      if (isLate()) startOver()
      if (learned !== sent) {
        sent = learned
        allowed.fromMs = sentAtMs
      }
      const fence = await send(sent ?? 0)
      // A reply that comes this late says nothing about the time in between.
      if (sent !== null && isLate()) startOver()
      countedUntilMs = sentAtMs + outageTtlMs
      learned = fence
      if (sent !== null) allowed.untilMs = countedUntilMs
    },
  }
}

/**
 * Notices from Redis's clock that our monotonic one has stood still, as it does while a virtual machine is
 * suspended, or that it is slow. Copies of keys are then older than they seem.
 *
 * How far Redis's clock is ahead of ours is known up to the delay of the reply: the shorter that is, the
 * higher the difference. So the highest difference of a while ago counts.
 */

/** More than a reply in time may take (with-timeout.ts), and less than a change waits beyond copies. */
const standstillMinMs = 150
/** No copy lives longer (config.ts), so what is missed in its life is at most twice the above. */
const windowMs = 60_000

/** Takes Redis's time, in Unix milliseconds, when the reply is there. Returns true at each standstill. */
export function watchStandstill(): (nowMs: number) => boolean {
  /** The highest of the last window; it does not follow each reply, or many short standstills would pass. */
  let known: number | null = null
  let highest = 0
  let sinceMs = 0

  return (nowMs) => {
    const monoMs = performance.now()
    const aheadMs = nowMs - monoMs
    highest = Math.max(highest, aheadMs)
    const stoodStill = known !== null && aheadMs > known + standstillMinMs
    if (known !== null && !stoodStill && monoMs - sinceMs <= windowMs) return false
    known = known === null || stoodStill ? aheadMs : highest
    highest = aheadMs
    sinceMs = monoMs
    return stoodStill
  }
}

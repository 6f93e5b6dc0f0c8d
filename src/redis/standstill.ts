/**
 * Notices from Redis's clock that our monotonic one has stood still, as it does while a virtual machine is
 * suspended, or that it is slow. Copies of keys are then older than they seem.
 *
 * How far Redis's clock is ahead of ours is known up to the delay of the reply: the shorter that is, the
 * higher the difference. So what counts is the highest difference lately.
 */

/** More than the delay of a reply in time (with-timeout.ts), and less than a change waits beyond copies. */
const standstillMinMs = 150
/** A server's clock may be set back: what was seen before that long is forgotten. */
const rememberedMs = 60_000

/** Takes Redis's time, in Unix milliseconds, when the reply is there. Returns true at each standstill. */
export function watchStandstill(): (nowMs: number) => boolean {
  let highest = -Infinity
  let highestBefore = -Infinity
  let sinceMs = -Infinity

  return (nowMs) => {
    const monoMs = performance.now()
    const aheadMs = nowMs - monoMs
    const known = Math.max(highest, highestBefore)
    const stoodStill = known !== -Infinity && aheadMs > known + standstillMinMs
    if (stoodStill || monoMs - sinceMs > rememberedMs) {
      highestBefore = highest
      highest = aheadMs
      sinceMs = monoMs
    } else if (aheadMs > highest) highest = aheadMs
    return stoodStill
  }
}

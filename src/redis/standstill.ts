/**
 * Notices from Redis's clock that our monotonic one has stood still, as it does while a virtual machine is
 * suspended, or that it is slow. Copies of keys are then older than they seem.
 *
 * Redis's time is from between the call and the reply. So it says how far its clock is ahead of ours at
 * least and at most, however late the reply is noticed.
 */

/** Less than a change waits beyond copies. Clocks that NTP corrects differ by less in the time below. */
const standstillMinMs = 150
/** No copy lives longer (config.ts), so what is missed in its life is at most twice the above. */
const windowMs = 60_000

/**
 * Takes Redis's time, in Unix milliseconds, when the reply is there, and when the call was sent
 * (performance.now). Returns true at each standstill.
 */
export function watchStandstill(): (nowMs: number, sentAtMs: number) => boolean {
  /**
   * How far ahead at most. It falls at once, as a lower reply is the truth, but rises only to the lowest of
   * a whole window, or many short standstills would pass.
   */
  let known: number | null = null
  let lowest = Infinity
  let sinceMs = 0

  return (nowMs, sentAtMs) => {
    const monoMs = performance.now()
    const atMostMs = nowMs - sentAtMs
    lowest = Math.min(lowest, atMostMs)
    // A clock that is set back may hide a standstill.
    const stoodStill =
      known !== null && (nowMs - monoMs > known + standstillMinMs || atMostMs < known - standstillMinMs)
    if (known !== null && !stoodStill && monoMs - sinceMs <= windowMs) {
      known = Math.min(known, atMostMs)
      return false
    }
    known = stoodStill ? atMostMs : lowest
    lowest = atMostMs
    sinceMs = monoMs
    return stoodStill
  }
}

/**
 * The minute window in which a request is counted (docs/api.md, The rate limit). Times are those of
 * the counting server.
 */
const windowS = 60

/** The number of the minute, counted from 1970. */
export const minuteOf = (nowMs: number): number => Math.floor(nowMs / 1000 / windowS)

/** When the minute ends, in Unix seconds. */
export const resetAtSOf = (nowMs: number): number => (minuteOf(nowMs) + 1) * windowS

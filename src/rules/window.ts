/** The minute window that a request is counted in (spec section 8). All times are the counting server's. */
export const windowS = 60

export const minuteOf = (nowMs: number): number => Math.floor(nowMs / (windowS * 1000))

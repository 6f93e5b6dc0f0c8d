/** The minute window in which a request is counted (spec section 8). All times are by the counting server's clock. */
export const windowS = 60

export const minuteOf = (nowMs: number): number => Math.floor(nowMs / (windowS * 1000))

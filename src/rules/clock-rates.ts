/**
 * Waiting for a time that another machine measures: its clock may be slower or faster. The rates of two
 * clocks are assumed to differ by at most 4 % (docs/architecture.md, The model).
 */
const rateDifferenceMax = 0.04
/** For Postgres, which reads the time of a report a little later than the instance that sends it. */
const silenceMarginMs = 1000

/** How long this many milliseconds of another machine may take by our clock. */
export const elsewhereMs = (ms: number): number => ms * (1 + rateDifferenceMax)

/** How long this many milliseconds of another machine surely last by our clock, if it is slower. */
export const atLeastMs = (ms: number): number => ms / (1 + rateDifferenceMax)

/**
 * How long Postgres must not have heard of an instance before that instance surely uses no old copy
 * any more. `outageTtlMs`: how long it may use them after its last report, by its own clock.
 */
export const silenceMs = (outageTtlMs: number): number => elsewhereMs(outageTtlMs) + silenceMarginMs

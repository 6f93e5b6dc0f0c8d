/** Decides a request apart from any framework: authenticates it, counts it, and records its refusal. */
import { type ApiError, unavailable } from '../../plugins/api-error.ts'
import { type Counted, type Denied, overLimit, refusal } from '../../plugins/verdict.ts'
import type { Gate } from '../guard/gate.ts'
import type { CachedKey } from '../guard/key-cache.ts'

/**
 * `presented`: the token of the request, or why it has none. `record`: stores a refusal. Calls `done`
 * once, perhaps at once: with the error to answer, or null; and with the count if the request was
 * counted.
 */
export type Check = (
  presented: string | Denied,
  record: (denied: Denied) => Promise<void>,
  done: (error: ApiError | null, counted?: Counted<CachedKey>) => void,
) => void

/** `start`: how each token begins. */
export const checkWith =
  ({ verify, hit }: Pick<Gate, 'verify' | 'hit'>, start: string): Check =>
  (presented, record, done) => {
    const refuse = (denied: Denied) => void refusal(() => record(denied), { start }).then(done)
    if (typeof presented !== 'string') return refuse(presented)
    verify(presented, (error, verdict) => {
      if (error !== null || verdict === undefined) return done(unavailable(error))
      if (!verdict.ok) return refuse(verdict)
      hit(verdict.caller, (error, counted) => {
        if (error !== null || counted === undefined) return done(unavailable(error))
        if (!counted.ok) return refuse(counted)
        done(overLimit(counted), counted)
      })
    })
  }

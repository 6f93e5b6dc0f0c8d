/** A request, decided as the guard of the package decides it. */
import type { createRefusals } from '../../src/guard/refusals.ts'
import type { Check } from '../../src/package/check.ts'
import type { RefusalRecord } from '../../src/stores.ts'

/** How a request was decided. */
export interface Decided {
  status: 200 | 401 | 429 | 503
  /** Of the key's state that decided, and its limit; null for a 401 or 503. */
  version: number | null
  limit: number | null
  /** 0 for a 401 or 503. */
  resetAtS: number
  requestId: string
}

type Refusals = Pick<ReturnType<typeof createRefusals>, 'record'>

export function request(
  { check, refusals }: { check: Check; refusals: Refusals },
  token: string,
  requestId: string,
): Promise<Decided> {
  return new Promise((resolve, reject) => {
    let answered = false
    check(
      token,
      ({ reason }) => refusals.record({ requestId, reason, ip: null } as RefusalRecord),
      (error, counted) => {
        if (answered) throw new Error('answered twice')
        answered = true
        const status = error?.statusCode ?? 200
        const cause = error?.cause as { statusCode?: number } | undefined
        if (status === 503 && cause !== undefined && cause.statusCode !== 503) return reject(cause)
        resolve({
          status: status as Decided['status'],
          version: counted?.caller.version ?? null,
          limit: counted?.caller.rateLimitRpm ?? null,
          resetAtS: counted?.resetAtS ?? 0,
          requestId,
        })
      },
    )
  })
}

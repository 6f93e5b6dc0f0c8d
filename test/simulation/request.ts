/** A request: what plugins/authenticate.ts and plugins/rate-limit.ts do. */
import type { createGate } from '../../src/guard/gate.ts'
import type { CachedKey } from '../../src/guard/key-cache.ts'
import type { createRefusals } from '../../src/guard/refusals.ts'
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

type Gate = Pick<ReturnType<typeof createGate>, 'verify' | 'hit'>
type Refusals = Pick<ReturnType<typeof createRefusals>, 'record'>

export async function request(
  { gate, refusals }: { gate: Gate; refusals: Refusals },
  token: string,
  requestId: string,
): Promise<Decided> {
  const verified = await new Promise<Parameters<Parameters<Gate['verify']>[1]>>((resolve) =>
    gate.verify(
      token,
      once((...given) => resolve(given)),
    ),
  )
  const [error, verdict] = verified
  if (error) return unavailable(error, requestId)
  if (!verdict?.ok) return refuse(refusals, verdict!.reason, requestId)
  const [hitError, counted] = await new Promise<Parameters<Parameters<Gate['hit']>[1]>>((resolve) =>
    gate.hit(
      verdict.caller as CachedKey,
      once((...given) => resolve(given)),
    ),
  )
  if (hitError) return unavailable(hitError, requestId)
  if (!counted?.ok) return refuse(refusals, counted!.reason, requestId)
  const { version, rateLimitRpm } = counted.caller as CachedKey
  const status = counted.count <= rateLimitRpm ? 200 : 429
  return { status, version, limit: rateLimitRpm, resetAtS: counted.resetAtS, requestId }
}

/** A callback that is called again is an answer given twice. */
function once<T extends unknown[]>(answer: (...given: T) => void) {
  let answered = false
  return (...given: T) => {
    if (answered) throw new Error('answered twice')
    answered = true
    answer(...given)
  }
}

async function refuse(refusals: Refusals, reason: string, requestId: string): Promise<Decided> {
  try {
    await refusals.record({ requestId, reason, ip: null } as RefusalRecord)
  } catch (error) {
    return unavailable(error as Error, requestId)
  }
  return { status: 401, version: null, limit: null, resetAtS: 0, requestId }
}

function unavailable(error: Error, requestId: string): Decided {
  if ((error as { statusCode?: number }).statusCode !== 503) throw error
  return { status: 503, version: null, limit: null, resetAtS: 0, requestId }
}

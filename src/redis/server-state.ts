/**
 * Whether a Redis server counts, as far as its last answer says. Once a call has failed, nothing
 * more is sent to it until it answers a probe.
 */
import type { Outage } from '../stores.ts'
import { isAnswer, isVague, outageOf } from './outage.ts'
import { withTimeout } from './with-timeout.ts'

export interface ServerStateOptions {
  /** Why nothing can be sent; null while connected. */
  fault: () => Error | null
  /**
   * Makes the server write what a count writes: a server that answers PING may still be unable to
   * count.
   */
  probe: () => Promise<number[]>
  /**
   * Asks the cluster which node has which slots: after a failover they have moved, and a silent
   * node does not say so.
   */
  locate: () => void
  /** Replaces the connection, which has been silent for too long. */
  reconnect: () => void
  /**
   * Null when the server counts again. Called again if the outage turns out to have another cause
   * that lasts.
   */
  onOutage: (outage: Outage | null) => void
  /** The server's clock, from a probe that it answered. */
  onClock: (answer: number[]) => void
  /** The server no longer counts: hits that were not sent yet must be counted locally. */
  onLocal: () => void
  answerTimeoutMs: number
}

export interface ServerState {
  /**
   * new: hits are sent, but the server has not counted yet; local: this instance counts in its
   * place.
   */
  readonly mode: 'new' | 'shared' | 'local'
  readonly outage: Outage | null
  /** The server has answered a call. */
  counted(): void
  /** The server has failed a call: count locally until it answers a probe. */
  failed(error: Error): void
  /** Something else than a count has failed: probe the server once. */
  doubt(): void
  close(): void
}

const probeEveryMs = 200
/** A connection that answers no probe for this long is replaced: its peer may have vanished. */
const staleAfterMs = 1000
/** How long a new server may take to connect before it counts as down. */
const newForMs = 1000
const newProbeEveryMs = 20

/** Each is reported: these do not go away by themselves, and of `other` only its reason says more. */
const lasting: Outage['cause'][] = [
  'wrong_password',
  'no_permission',
  'certificate',
  'tls',
  'unknown_host',
  'read_only',
  'out_of_memory',
  'cluster_down',
  'other',
]

export function createServerState(options: ServerStateOptions): ServerState {
  const { fault, locate, reconnect, onOutage, onClock, onLocal, answerTimeoutMs } = options
  const newUntilMs = performance.now() + newForMs
  const reported = new Set<Outage['cause']>()
  let probing: NodeJS.Timeout | undefined
  let closed = false
  // Plain fields, because `mode` is read for every hit.
  const state = {
    mode: 'new' as ServerState['mode'],
    outage: null as Outage | null,
    counted() {
      if (state.mode === 'new') state.mode = 'shared'
    },
    failed,
    doubt() {
      if (probing === undefined && !closed) probeLater(performance.now())
    },
    close() {
      closed = true
      clearTimeout(probing)
      probing = undefined
    },
  }

  function failed(error: Error) {
    if (state.mode === 'local' || closed) return
    state.mode = 'local'
    report(error)
    onLocal()
    clearTimeout(probing)
    probeLater(performance.now())
  }

  /** Reports the start of an outage, and each further cause that lasts once. */
  function report(error: Error) {
    // Without a connection, the call's own error does not say why.
    const latest = fault() ?? error
    const { cause } = outageOf(latest)
    // Nor does the end of a connection that we have replaced ourselves.
    if (state.outage === null || !isVague(latest)) state.outage = outageOf(latest)
    if (reported.size > 0 && (reported.has(cause) || !lasting.includes(cause))) return
    reported.add(cause)
    onOutage(state.outage)
  }

  function answered(answer: number[]) {
    onClock(answer)
    probing = undefined
    const wasLocal = state.mode === 'local'
    state.mode = 'shared'
    state.outage = null
    reported.clear()
    if (wasLocal) onOutage(null)
  }

  async function probe() {
    const unreachable = fault()
    if (unreachable) throw unreachable
    return withTimeout(options.probe(), answerTimeoutMs)
  }

  function probeLater(silentSinceMs: number) {
    const timer = setTimeout(
      () =>
        probe().then(
          (answer) => timer === probing && answered(answer),
          (error) => timer === probing && unanswered(error, silentSinceMs),
        ),
      state.mode === 'new' ? newProbeEveryMs : probeEveryMs,
    )
    timer.unref()
    probing = timer
  }

  function unanswered(error: Error, silentSinceMs: number) {
    const nowMs = performance.now()
    if (state.mode === 'new' && fault() && nowMs < newUntilMs) return probeLater(silentSinceMs)
    if (state.mode !== 'local') return failed(error)
    report(error)
    locate()
    // An error is an answer too: the connection works. But a replica never counts, and neither does a
    // master that is cut off from its replicas (`other`): the master may be elsewhere now.
    const isAlive = isAnswer(error) && !['read_only', 'other'].includes(state.outage!.cause)
    const isStale = nowMs - silentSinceMs > staleAfterMs
    if (!isAlive && isStale) reconnect()
    probeLater(isAlive || isStale ? nowMs : silentSinceMs)
  }

  probeLater(performance.now())
  return state
}

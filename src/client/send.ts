/**
 * Sends requests, and repeats those that are safe to repeat. Needs only what browsers, Node, Deno
 * and Bun have in common: fetch, URL, AbortSignal and timers.
 */
import { errorOf, LatchkeyError, noResponse } from './errors.ts'

export interface ClientOptions {
  /** Where the service is, for example `https://keys.example.com`. It may have a path. */
  baseUrl: string
  /**
   * For one attempt, from the first byte sent to the last one received: up to 2,147,483,647. Default
   * 10,000 for GET, and 110,000 otherwise, which is longer than the service takes for any change.
   */
  timeoutMs?: number | undefined
  /** Attempts after the first. Default 2. */
  retries?: number | undefined
  /** If `Retry-After` is longer, the call rejects at once. Default 60: every limit resets within a minute. */
  retryAfterMaxS?: number | undefined
  /** Instead of the global `fetch`: for a proxy, an agent or a test. */
  fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined
}

export interface CallOptions {
  /** Ends the call, also while it waits for the next attempt. It then rejects with the signal's reason. */
  signal?: AbortSignal | undefined
}

export interface Call extends CallOptions {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Its segments, not yet encoded. */
  path: readonly string[]
  query?: object | undefined
  body?: unknown
  /** Whether a success is the service's. Unless given: whether it has an `id`. */
  isOurs?: (body: object) => boolean
}

/**
 * For `isOurs`: a body with this member. Not a header, because browsers hide those of other origins.
 */
export const has = (member: string) => (body: object) => member in body

export type Send = <T>(call: Call) => Promise<T>

const readTimeoutMs = 10_000
/**
 * The slowest change takes the service 99 s: 31 s in Postgres for all keys of a user, and then,
 * without Redis and with the largest KEY_CACHE_SECONDS, 68 s until every instance has seen it. A
 * client that gives up earlier loses the `plain_key` of a rotation that has taken place.
 */
const changeTimeoutMs = 110_000
/** Spreads clients that wait for the same minute to end. */
const jitterMaxMs = 1000
const backoffBaseMs = 200
/** What timers take on every platform. A longer one may end at once. */
const timeoutMsMax = 2 ** 31 - 1
/** All that can be in a header without changing its meaning. */
const visibleAscii = /^[\x21-\x7e]+$/

export function createSend(token: string, options: ClientOptions): Send {
  const { retries = 2, retryAfterMaxS = 60 } = options
  // AbortSignal.timeout takes no fraction.
  const timeoutMs = options.timeoutMs && Math.ceil(options.timeoutMs)
  const fetchNow = options.fetch ?? ((url, init) => fetch(url, init))
  const base = baseOf(options.baseUrl)
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= timeoutMsMax))
    throw new TypeError(`\`timeoutMs\` must be above 0 and at most ${timeoutMsMax}.`)
  // The platform's own message would show the token.
  if (typeof token !== 'string' || !visibleAscii.test(token))
    throw new TypeError('The key or token must be visible ASCII characters.')

  return async <T>(given: Call): Promise<T> => {
    const following = given.signal && follow(given.signal)
    const call = following === undefined ? given : { ...given, signal: following.signal }
    try {
      /** The error of an attempt that may have been carried out. */
      let uncertain: LatchkeyError | undefined
      for (let attempt = 0; ; attempt++) {
        try {
          return (await once(call)) as T
        } catch (error) {
          if (!(error instanceof LatchkeyError)) throw error
          const waitMs = attempt < retries ? waitAfter(error, call, attempt) : null
          // Of a change that may have been made, a refusal is no proof that it was not: the key may have
          // revoked itself, or be expired by now.
          const isChange = call.method !== 'GET'
          if (waitMs === null) throw uncertain && isChange && isRefusal(error) ? uncertain : error
          if (error.status !== 429) uncertain = error
          await sleep(waitMs, call.signal)
        }
      }
    } finally {
      following?.end()
    }
  }

  async function once({ method, path, query, body, signal, isOurs = has('id') }: Call): Promise<unknown> {
    // Outside `try`: what cannot be encoded is not the network's fault.
    const json: string | undefined = JSON.stringify(body)
    const url = `${base}/${path.map(segment).join('/')}${queryOf(query)}`
    const timeout = AbortSignal.timeout(timeoutMs ?? (method === 'GET' ? readTimeoutMs : changeTimeoutMs))
    let response: Response
    let text: string
    try {
      response = await fetchNow(url, {
        method,
        headers: {
          accept: 'application/json',
          authorization: `Bearer ${token}`,
          ...(json !== undefined && { 'content-type': 'application/json' }),
        },
        ...(json !== undefined && { body: json }),
        // The service sends no redirect. Following one would turn a POST into a GET.
        redirect: 'manual',
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      })
      text = await response.text()
    } catch (cause) {
      signal?.throwIfAborted()
      throw noResponse(cause, timeout.aborted)
    }
    const parsed = parse(text)
    if (!response.ok || typeof parsed !== 'object' || parsed === null || !isOurs(parsed))
      throw errorOf(response, parsed)
    return parsed
  }

  /** Milliseconds until the call may be repeated; null if it must not be. */
  function waitAfter({ status, code, retryAfterS }: LatchkeyError, { method }: Call, attempt: number) {
    // A 429 was refused before anything was done. Otherwise, a POST may have been carried out.
    if (status !== 429 && method === 'POST') return null
    const isTransient =
      status === 429 || (status >= 502 && status <= 504) || code === 'no_response' || code === 'timeout'
    if (!isTransient || (retryAfterS ?? 0) > retryAfterMaxS) return null
    const leastMs = retryAfterS === null ? backoffBaseMs * 2 ** attempt : retryAfterS * 1000
    return leastMs + Math.random() * (retryAfterS === null ? leastMs : jitterMaxMs)
  }
}

const isRefusal = ({ status }: LatchkeyError) => status >= 400 && status < 500

/** Paths are appended to it. The errors do not show it: it may hold a password. */
function baseOf(baseUrl: string): string {
  // The platform's own error holds all of it.
  if (!URL.canParse(baseUrl)) throw new TypeError('`baseUrl` must be an absolute URL.')
  const { protocol, href, search, hash, username, password } = new URL(baseUrl)
  if (protocol !== 'http:' && protocol !== 'https:')
    throw new TypeError('`baseUrl` must begin with http:// or https://.')
  if (search || hash || username || password)
    throw new TypeError('`baseUrl` must have no query, fragment, user or password.')
  return href.replace(/[/?#]*$/, '')
}

/** Others would leave their place in the path: parsers of URLs resolve `..`, encoded or not. */
function segment(text: string): string {
  if (/^\.{0,2}$/.test(text)) throw new TypeError('An id must not be empty, `.` or `..`.')
  return encodeURIComponent(text)
}

function queryOf(query: object = {}): string {
  const words = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined) words.set(name, String(value))
  return words.size === 0 ? '' : `?${words}`
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** The calls under way with each signal that was given. */
const calls = new WeakMap<AbortSignal, Set<AbortController>>()

/**
 * A signal of the call's own, which aborts with the given one. Many calls may share that one, for
 * years: it gets one listener for all of them, because Node warns of a leak if there are many, and
 * no AbortSignal.any, which in Node 20 leaves an entry on it for good.
 */
function follow(given: AbortSignal) {
  const own = new AbortController()
  if (given.aborted) own.abort(given.reason)
  const sharing = calls.get(given) ?? new Set()
  if (sharing.size === 0) given.addEventListener('abort', abortAll)
  calls.set(given, sharing.add(own))
  return {
    signal: own.signal,
    end() {
      sharing.delete(own)
      if (sharing.size === 0) given.removeEventListener('abort', abortAll)
    },
  }
}

function abortAll(this: AbortSignal) {
  for (const call of calls.get(this)!) call.abort(this.reason)
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer)
      reject(signal!.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, ms)
    if (signal?.aborted) stop()
    else signal?.addEventListener('abort', stop, { once: true })
  })
}

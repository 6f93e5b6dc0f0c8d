/** One client with a key of its own, one request at a time: so it knows what is left of its limit after each. */
import { type Instance, makeKey, makeUser } from '../instance.ts'
import { checkFits, checkReply, isRated } from './fuzz-check.ts'
import { exchange } from './fuzz-exchange.ts'
import { read } from './fuzz-reading.ts'
import type { Reply } from './fuzz-reply.ts'
import { bytesOf, type FuzzRequest } from './fuzz-requests.ts'

/** Where the requests go now: a service that has ended is replaced. */
export interface Target {
  port(): Promise<number>
  /** Throws if it has ended. */
  alive(): void
}

export interface Attempt {
  readonly kind: string
  readonly tookMs: number
}

export interface Lane {
  /** Sends the request, checks all that comes of it, and says what that was and how long it took, milliseconds. */
  attempt(request: FuzzRequest): Promise<Attempt>
}

const limit = 1_000_000_000

export async function openLane(maker: Instance, target: Target): Promise<Lane> {
  const { id: userId } = await makeUser(maker)
  const { token } = await makeKey(maker, { userId, rateLimitRpm: limit })
  let keyId = (await makeKey(maker, { userId })).id
  let last = { reset: 0, remaining: 0 }
  /** Requests that got no answer: each may have been counted. */
  let unsure = 0

  function count({ headers }: Reply) {
    const reset = Number(headers.get('x-ratelimit-reset'))
    const remaining = Number(headers.get('x-ratelimit-remaining'))
    const before = reset === last.reset ? last.remaining : limit
    const counted = before - remaining
    const first = last.reset === 0
    last = { reset, remaining }
    if (reset % 60 !== 0 || headers.get('x-ratelimit-limit') !== String(limit))
      throw new Error('wrong rate headers')
    if (!first && (counted < 1 || counted > 1 + unsure)) {
      throw new Error(`counted ${counted} times since the request before, ${unsure} of which had no answer`)
    }
    unsure = 0
  }

  /** A good request: shows what was counted by those before it that did not say. */
  async function ask(): Promise<void> {
    const lines = ['GET /v1/verify HTTP/1.1', 'Host: latchkey.test', `Authorization: Bearer ${token}`]
    const bytes = Buffer.from([...lines, 'Connection: close', '', ''].join('\r\n'))
    const { replies } = await exchange(await target.port(), bytes, { toHead: false, whole: true })
    if (replies.length !== 1 || replies[0]!.status !== 200)
      throw new Error('a good request after it is not answered')
    count(replies[0]!)
  }
  await ask()

  async function send(request: FuzzRequest): Promise<Attempt> {
    const known = { token, keyId }
    const reading = read(request, known)
    const { toHead } = reading
    const sent = await exchange(await target.port(), bytesOf(request, known), reading)
    const { replies, raw, gaveUp, tookMs } = sent
    const [reply] = replies
    if (reply === undefined && !gaveUp && reading.good) throw new Error('closed without an answer')
    if (raw.includes(token)) throw new Error('the token is told')
    const kinds = replies.map((one, i) => checkReply(one, toHead && i === 0))
    // A 503 may come before or after counting.
    if (reply === undefined || reply.status === 503) unsure++
    else checkFits(reply, reading)
    const rated = replies.filter(isRated)
    for (const one of rated) count(one)
    if (rated.length === 0) await ask()
    if (reply?.status === 201) keyId = JSON.parse(reply.text).id
    return { kind: kinds[0] ?? 'closed', tookMs: gaveUp ? 0 : tookMs }
  }

  return {
    async attempt(request) {
      try {
        return await send(request)
      } catch (error) {
        target.alive()
        throw error
      }
    },
  }
}

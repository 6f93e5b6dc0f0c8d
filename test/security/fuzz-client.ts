/**
 * A client with a key of its own that sends one request at a time, so it knows what is left of its
 * limit after each.
 */
import { type Instance, makeKey, makeUser } from '../instance.ts'
import { describedBy } from '../openapi/described.ts'
import { scaled } from '../soak.ts'
import { checkAnswer, checkFits, isRated } from './fuzz-check.ts'
import { bytesOf, type FuzzRequest, read } from './fuzz-requests.ts'
import { verify } from './requests.ts'
import { openWire, type WireAnswer } from './wire.ts'

export interface FuzzClient {
  /**
   * Sends the request and checks everything that comes back. Says what that was, and how long it
   * took.
   */
  send(request: FuzzRequest): Promise<{ kind: string; tookMs: number }>
}

/**
 * Answered or closed: the soak checks the promise, and a brief run on a busy machine only sees what
 * hangs.
 */
const answeredInMs = scaled(60_000, 2000)
/** After this, a server that waits for the rest of a request learns that there is none. */
const restMs = scaled(40, 150)
const limit = 1_000_000_000

export async function openClient(maker: Instance, portNow: () => Promise<number>): Promise<FuzzClient> {
  const { id: userId } = await makeUser(maker)
  const { token } = await makeKey(maker, { userId, rateLimitRpm: limit })
  let keyId = (await makeKey(maker, { userId })).id
  const expectDescribed = describedBy(maker.service.app.openapi())
  let last: { reset: number; remaining: number } | null = null
  /** Requests without a response: each may have been counted. */
  let unsure = 0

  function count({ headers }: WireAnswer) {
    const reset = Number(headers.get('x-ratelimit-reset'))
    const remaining = Number(headers.get('x-ratelimit-remaining'))
    const counted = (reset === last?.reset ? last.remaining : limit) - remaining
    if (reset % 60 !== 0 || headers.get('x-ratelimit-limit') !== String(limit))
      throw new Error('wrong rate headers')
    if (last !== null && (counted < 1 || counted > 1 + unsure))
      throw new Error(`counted ${counted} times since the request before; ${unsure} had no response`)
    last = { reset, remaining }
    unsure = 0
  }

  /** A good request: shows how often those before it were counted that do not say so. */
  async function ask(): Promise<void> {
    const wholly = { toHead: false, whole: true }
    const { answers } = await exchange(await portNow(), verify(token, 'Connection: close'), wholly)
    if (answers.length !== 1 || answers[0]!.status !== 200) throw new Error('a good request behind it failed')
    count(answers[0]!)
  }
  await ask()

  return {
    async send(request) {
      const known = { token, keyId }
      const reading = read(request, known)
      const { answers, gaveUp, tookMs } = await exchange(await portNow(), bytesOf(request, known), reading)
      const [answer] = answers
      if (answer === undefined && !gaveUp && reading.good) throw new Error('closed without a response')
      if (answers.some(({ raw }) => raw.includes(token))) throw new Error('the token is in the response')
      const kinds = answers.map((one, i) => checkAnswer(one, reading.toHead && i === 0))
      // A 503 may come before or after counting.
      if (answer !== undefined && reading.good) expectDescribed(request.method, reading.target, answer)
      if (answer === undefined || answer.status === 503) unsure++
      else checkFits(answer, reading)
      const rated = answers.filter(isRated)
      for (const one of rated) count(one)
      if (rated.length === 0) await ask()
      if (answer?.status === 201) keyId = answer.body.id
      return { kind: kinds[0] ?? 'closed', tookMs: gaveUp ? 0 : tookMs }
    },
  }
}

/**
 * Sends these bytes on a connection of their own, and gives all that comes back until it is closed.
 */
async function exchange(port: number, bytes: string, { toHead, whole }: { toHead: boolean; whole: boolean }) {
  const wire = openWire(port, { toHead, waitMs: answeredInMs + (whole ? 0 : restMs) })
  let sentMs = performance.now()
  // Then there may be no response at all.
  let gaveUp = false
  const rest = setTimeout(() => {
    gaveUp = !whole
    if (gaveUp) wire.socket.end()
  }, restMs)
  try {
    void wire.write(bytes).then(() => {
      sentMs = performance.now()
    })
    await wire.answered(1)
    const tookMs = (wire.answers[0]?.atMs ?? performance.now()) - sentMs
    clearTimeout(rest)
    // The server may keep the connection open. Half-closing it ends it after the last response.
    wire.socket.end()
    const answers = await wire.ended()
    if (wire.rest !== '') throw new Error(`not a whole response: ${wire.rest.slice(0, 500)}`)
    return { answers, gaveUp, tookMs }
  } finally {
    clearTimeout(rest)
    wire.socket.destroy()
  }
}

// Keys that are to expire, asked for on every instance before and after: who was refused too early, who was admitted too late.
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { makeCaller } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { patiently, type ThreeInstances } from './three-instances.ts'

const askEveryMs = 20
const watchedAfterMs = 1500
const cachedBeforeMs = 700
/** Admitted later than this is too late. */
export const allowedLateMs = 1000

export interface ExpiryWatched {
  admitted: number
  refused: number
  /** Refusals before the moment, and answers that are never right. */
  wrong: Set<string>
  /** Refusals before the moment. */
  early: number
  /** The latest admission after it, milliseconds; 0: none. */
  lateMs: number
}

/** Each instance makes a key, by its own idea of the time; all are asked for all of them. The database is on this machine's clock. */
export async function watchExpiry(t: Test, { urls, operator }: ThreeInstances, aheadS: number) {
  const expiresAt = Math.ceil(Date.now() / 1000) + aheadS
  const expiryMs = expiresAt * 1000
  const manager = await patiently(() => makeCaller(operator))
  const seen: ExpiryWatched = { admitted: 0, refused: 0, wrong: new Set(), early: 0, lateMs: 0 }

  async function makeKey(url: string, name: string): Promise<string> {
    const { status, body } = await ask(`POST ${url}/v1/keys`, {
      token: manager.token,
      json: { name, expires_at: expiresAt, rate_limit_rpm: 1_000_000 },
    })
    t.equal(status, 201, `${url} takes a moment ${aheadS} s ahead for the future`)
    t.ok(Math.abs(body.created_at - Date.now() / 1000) < 5, 'and dates the key by the database')
    return body.plain_key
  }

  async function look(url: string, token: string) {
    const sentMs = Date.now()
    const { status, body } = await ask(`GET ${url}/v1/verify`, { token })
    if (status === 200) seen.admitted++
    else seen.refused++
    if (Date.now() < expiryMs && status !== 200) seen.early++
    if (Date.now() < expiryMs && !(status === 200 && body.expires_at === expiresAt))
      seen.wrong.add(`${status} before it expires`)
    if (sentMs >= expiryMs && status === 200) seen.lateMs = Math.max(seen.lateMs, sentMs - expiryMs + 1)
    if (status !== 200 && status !== 401) seen.wrong.add(`${status}`)
  }

  /** Never out of use. */
  async function busy(url: string, token: string) {
    while (Date.now() < expiryMs + watchedAfterMs) {
      await look(url, token)
      await pause(askEveryMs)
    }
  }

  /** Freshly in the cache, and not used again until it has expired, so long after. */
  async function idle(url: string, token: string, restMs: number) {
    await pause(expiryMs - cachedBeforeMs - Date.now())
    await look(url, token)
    await pause(expiryMs + restMs - Date.now())
    await look(url, token)
  }

  for (const url of urls) {
    const past = { name: 'late', expires_at: Math.floor(Date.now() / 1000) - 1 }
    const { status, body } = await ask(`POST ${url}/v1/keys`, { token: manager.token, json: past })
    t.same([status, body.error?.param], [400, 'expires_at'], `${url} takes a moment 1 s ago for the past`)
  }
  const keys = (name: string) => Promise.all(urls.map((url) => makeKey(url, name)))
  const [used, unused, forgotten] = await Promise.all([keys('used'), keys('unused'), keys('forgotten')])
  await Promise.all(
    urls.flatMap((url) => [
      ...used.map((token) => busy(url, token)),
      ...unused.map((token) => idle(url, token, 0)),
      ...forgotten.map((token) => idle(url, token, allowedLateMs + 10)),
    ]),
  )
  return seen
}

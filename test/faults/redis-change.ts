/** A change of a key made on one instance, under load on all: when it was answered, and which answers show it too late or too early. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { type Load, type Sample, startLoad } from '../load.ts'
import { ask } from '../process/ask.ts'
import { scaled } from '../soak.ts'
import { answeredMs, faultsOf, stepsBack } from './redis-answers.ts'
import type { Fleet } from './redis-fleet.ts'

export interface Kind {
  name: string
  limit: number
  /** Null: revoked. */
  newLimit: number | null
}

export const kinds: Kind[] = [
  { name: 'revoked', limit: 1_000_000, newLimit: null },
  { name: 'lowered', limit: 1_000_000, newLimit: 7 },
  { name: 'raised', limit: 3, newLimit: 1_000_000 },
]

export interface Change {
  /** From sending it to its answer. */
  tookMs: number
  /** Requests begun after the answer, on each instance. */
  after: number[]
  faults: string[]
}

export interface Prepared {
  /** Makes the change on the first instance after this time. */
  make(afterMs: number): Promise<void>
  judge(): Promise<Change>
}

/** A key of that kind, in use on every instance from now on. */
export async function prepareChange(t: Test, fleet: Fleet, kind: Kind): Promise<Prepared> {
  const { urls, manager } = fleet
  const key = await fleet.makeKey(kind.limit)
  const load: Load = startLoad(t, { urls, tokens: [key.token], perSecond: scaled(20, 30) })
  const faults: string[] = []
  let sentMs = 0
  let toldMs = 0

  async function make(afterMs: number) {
    await pause(afterMs)
    const method = kind.newLimit === null ? 'DELETE' : 'PATCH'
    const json = kind.newLimit === null ? {} : { json: { rate_limit_rpm: kind.newLimit } }
    sentMs = performance.now()
    const { status, body } = await ask(`${method} ${urls[0]}/v1/keys/${key.id}`, {
      token: manager.token,
      ...json,
    })
    toldMs = performance.now()
    const changed = kind.newLimit === null ? body.revoked_at !== null : body.rate_limit_rpm === kind.newLimit
    if (status !== 200 || !changed) faults.push(`the change was answered ${status}`)
  }

  async function judge(): Promise<Change> {
    const samples = await load.stop()
    const isNew = ({ status, headers }: Sample) =>
      kind.newLimit === null ? status === 401 : headers['x-ratelimit-limit'] === String(kind.newLimit)
    const changed = samples.filter(isNew)
    const unchanged = samples.filter((sample) => !isNew(sample))
    faults.push(...faultsOf(unchanged, kind.limit), ...stepsBack(unchanged, kind.limit))
    if (kind.newLimit !== null)
      faults.push(...faultsOf(changed, kind.newLimit), ...stepsBack(changed, kind.newLimit))
    for (const sample of unchanged)
      if (sample.sentMs > toldMs)
        faults.push(`not ${kind.name} on instance ${sample.target} after the answer`)
    for (const sample of changed)
      if (answeredMs(sample) < sentMs)
        faults.push(`${kind.name} on instance ${sample.target} before it was asked for`)
    const after = urls.map((_, i) => samples.filter((one) => one.target === i && one.sentMs > toldMs).length)
    return { tookMs: toldMs - sentMs, after, faults }
  }
  return { make, judge }
}

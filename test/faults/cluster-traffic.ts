// A steady load on each of a few keys, over all instances, and what the answers say of each key's count.
import type { Test } from 'tap'
import { quantile, type Sample, startLoad } from '../load.ts'
import { until } from '../process/until.ts'
import { type Fleet, type FleetKey, verify } from './cluster-fleet.ts'
import { type Counted, countedOf } from './windows.ts'

export type Answered = Sample & Counted

/** From a fault until so much later its p99 may be up to this high. */
export const switchMs = 1000
export const switchP99MsMax = 250

export interface Traffic<Name extends string> {
  /** Waits until each key has had so many more answers. */
  more(count?: number): Promise<void>
  /** Sends no more. The answers by the names of the keys. */
  stop(): Promise<Record<Name, Answered[]>>
  /** The p99 of requests sent meanwhile that need neither Redis nor Postgres: how busy this machine was. */
  idleP99(fromMs: number): number
}

export const perSecond = 60

export function startTraffic<Name extends string>(
  t: Test,
  { urls }: Pick<Fleet, 'urls'>,
  keys: Record<Name, FleetKey>,
): Traffic<Name> {
  const loads = Object.entries<FleetKey>(keys).map(([name, { token }]) => ({
    name: name as Name,
    load: startLoad(t, { urls, tokens: [token], perSecond }),
  }))
  const idle = startLoad(t, { urls, tokens: ['none'], perSecond, path: '/docs/errors/unauthorized' })
  const answered = () => Math.min(...loads.map(({ load }) => load.samples.length))
  return {
    async more(count = 12) {
      const enough = answered() + count
      await until(`${count} more answers have come`, () => answered() >= enough, 60_000)
    },
    async stop() {
      const answers = {} as Record<Name, Answered[]>
      await idle.stop()
      for (const { name, load } of loads) {
        answers[name] = (await load.stop()).map((sample) => ({ ...sample, ...countedOf(sample) }))
      }
      return answers
    },
    idleP99: (fromMs) => switchP99(idle.samples, fromMs),
  }
}

/** The p99 of what was sent from a moment before the fault until the switch is over. */
export function switchP99(samples: readonly Sample[], faultMs: number): number {
  const during = samples.filter(({ sentMs }) => sentMs > faultMs - 100 && sentMs < faultMs + switchMs)
  return quantile(
    during.map(({ tookMs }) => tookMs),
    0.99,
  )
}

/** Requests with the key to every instance in turn, one after the other. */
export async function inTurn(
  { urls }: Pick<Fleet, 'urls'>,
  key: FleetKey,
  count: number,
): Promise<Counted[]> {
  const answers: Counted[] = []
  for (let i = 0; i < count; i++) answers.push(countedOf(await verify(urls[i % urls.length]!, key.token)))
  return answers
}

/**
 * By how much the key's counter in Redis grows with so many requests, all of one minute: as much, where they are counted there,
 * and there only.
 */
export async function growthOf(fleet: Fleet, key: FleetKey, count: number): Promise<number> {
  for (;;) {
    const [{ resetS }] = (await inTurn(fleet, key, 1)) as [Counted]
    const before = await fleet.countIn(key.id, resetS)
    const answers = await inTurn(fleet, key, count)
    const after = await fleet.countIn(key.id, resetS)
    if (answers.every((answer) => answer.resetS === resetS)) return after! - before!
  }
}

/** The most that one instance admitted in one minute. */
export function mostAdmitted(answers: readonly Answered[]): number {
  const admitted = new Map<string, number>()
  for (const { status, target, resetS } of answers) {
    if (status !== 200) continue
    const name = `${target} ${resetS}`
    admitted.set(name, (admitted.get(name) ?? 0) + 1)
  }
  return Math.max(0, ...admitted.values())
}

/** Numbers left that one instance told twice in one minute; its own count goes on whatever becomes of Redis. */
export function toldTwice(answers: readonly Answered[]): string[] {
  const told = new Set<string>()
  const twice: string[] = []
  for (const { status, target, resetS, remaining } of answers) {
    const name = `instance ${target}, minute until ${resetS}: ${remaining} left`
    if (status === 200 && told.has(name)) twice.push(name)
    told.add(name)
  }
  return twice
}

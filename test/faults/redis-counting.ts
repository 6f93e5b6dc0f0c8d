/** Keys used up, and whether Redis counts for all instances. */
import { minuteOf } from '../../src/rules/window.ts'
import type { Sample } from '../load.ts'
import { ask } from '../process/ask.ts'
import type { Serving } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { admittedOf, resetOf } from './redis-answers.ts'
import { countedIn, countedNow, type Fleet, type FleetKey, untilDegraded } from './redis-fleet.ts'

export const spentLimit = 4

/** A key that has used up the minute that ends at `reset`, as every instance has seen. */
export async function spend({ urls, makeKey }: Fleet) {
  for (;;) {
    const key = await makeKey(spentLimit)
    const resets = new Set<number>()
    for (let i = 0; i < 2 * spentLimit; i++) {
      const { headers } = await ask(`GET ${urls[i % urls.length]}/v1/verify`, key)
      resets.add(Number(headers.get('x-ratelimit-reset')))
    }
    const [reset, ...others] = resets
    if (others.length === 0) return { key, reset: reset! }
  }
}

/** When the instance has said that it counts in Redis, and Redis has counted a request of its key since. */
export async function countsInRedis(fleet: Fleet, instance: Serving, key: FleetKey): Promise<number> {
  await untilDegraded(instance, 0)
  const before = await countedNow(fleet, key)
  await until('Redis counts its key', async () => {
    const { minute, count } = await countedNow(fleet, key)
    return minute > before.minute ? count > 0 : count > before.count
  })
  return performance.now()
}

/** The instances share one count of a new key again: it is admitted up to its limit by all of them together. */
export async function notShared(fleet: Fleet): Promise<string[]> {
  for (;;) {
    const key = await fleet.makeKey(spentLimit)
    const answers = []
    for (let i = 0; i < 2 * spentLimit; i++)
      answers.push(await ask(`GET ${fleet.urls[i % fleet.urls.length]}/v1/verify`, key))
    const [reset, ...others] = new Set(answers.map(({ headers }) => headers.get('x-ratelimit-reset')))
    if (others.length > 0) continue // the minute ended in between
    const admitted = answers.filter(({ status }) => status === 200).length
    const counted = await countedIn(fleet, key, minuteOf(Number(reset) * 1000) - 1)
    const shared = admitted === spentLimit && counted === answers.length
    return shared ? [] : [`afterwards ${admitted} admitted of ${spentLimit}, ${counted} counted`]
  }
}

/** In each minute the key was admitted up to its limit by all instances together, and each request was counted once. */
export async function notExact(
  fleet: Fleet,
  key: FleetKey,
  samples: Sample[],
  limit: number,
): Promise<string[]> {
  const faults: string[] = []
  for (const reset of new Set(samples.map(resetOf))) {
    const ofMinute = samples.filter((sample) => resetOf(sample) === reset)
    const admitted = admittedOf(ofMinute)
    const counted = await countedIn(fleet, key, minuteOf(reset * 1000) - 1)
    if (admitted !== Math.min(limit, ofMinute.length))
      faults.push(`${admitted} of ${ofMinute.length} admitted, limit ${limit}`)
    if (counted !== ofMinute.length) faults.push(`${counted} counted of ${ofMinute.length}`)
  }
  return faults
}

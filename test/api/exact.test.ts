// Exact: in one minute a key admits its limit and not one request more, whatever the instances and the concurrency.
import t from 'tap'
import { minuteOf } from '../../src/rules/window.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const services = await useServices(t)
const instances = await Promise.all([1, 2, 3].map(() => startInstance(t, services)))
const redis = services.connectRedis()

/** Sends so many requests, so many at once, to the instances in turn. Gives the numbers left, by the window they were counted in. */
async function flood(token: string, requests: number, atOnce: number) {
  const windows = new Map<string, { admitted: number[]; refused: number }>()
  let sent = 0
  const sender = async () => {
    while (sent < requests) {
      const instance = instances[sent++ % instances.length]!
      const { status, headers } = await instance.ask('GET', '/v1/verify', { token })
      const reset = headers.get('x-ratelimit-reset')!
      const window = windows.get(reset) ?? { admitted: [], refused: 0 }
      windows.set(reset, window)
      if (status === 200) window.admitted.push(Number(headers.get('x-ratelimit-remaining')))
      else if (status === 429) window.refused++
      else t.fail(`answered ${status}`)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, sender))
  return windows
}

const cases = [
  { limit: 1, requests: 60, atOnce: 60 },
  { limit: 7, requests: 100, atOnce: 10 },
  { limit: 100, requests: 400, atOnce: 200 },
  { limit: 3000, requests: 3300, atOnce: 200 },
]

for (const { limit, requests, atOnce } of cases) {
  t.test(
    `${requests} requests, ${atOnce} at once on three instances, are admitted ${limit} times`,
    async (t) => {
      const { id, token } = await makeCaller(instances[0]!, { rateLimitRpm: limit })
      const windows = await flood(token, requests, atOnce)
      for (const [reset, { admitted, refused }] of windows) {
        const sent = admitted.length + refused
        t.equal(admitted.length, Math.min(limit, sent), `${sent} sent in the minute that ends at ${reset}`)
        const left = admitted.toSorted((a, b) => b - a)
        t.strictSame(
          left,
          left.map((_, i) => limit - 1 - i),
          'each number left is told once',
        )
        const counter = await redis.get(`rl:{${id}}:${minuteOf(Number(reset) * 1000) - 1}`)
        t.equal(Number(counter), sent, 'the counter is the number of requests')
      }
    },
  )
}

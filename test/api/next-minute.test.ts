// Alone because it waits for a real minute to end: the clock is the servers', and no test may set it.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { inOneMinute, resetOf } from './one-minute.ts'

const instance = await startInstance(t, await useServices(t))

t.test('a client that waits for Retry-After is admitted again, with the whole limit', async (t) => {
  const { token, answers } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance, { rateLimitRpm: 2 })
    const verify = () => instance.ask('GET', '/v1/verify', { token })
    return { token, answers: [await verify(), await verify(), await verify()] }
  })
  const refused = answers[2]!
  t.equal(refused.status, 429)
  await pause(Number(refused.headers.get('retry-after')) * 1000)
  const again = await instance.ask('GET', '/v1/verify', { token })
  t.equal(again.status, 200)
  t.equal(again.headers.get('x-ratelimit-remaining'), '1')
  t.equal(resetOf(again), resetOf(refused) + 60)
})

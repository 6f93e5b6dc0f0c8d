// A key over its limit is usable again in the next minute, which takes up to a minute to see.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { inOneMinute, resetOf } from '../api/one-minute.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

t.test('a client that waits for Retry-After is admitted again, with the whole limit', async (t) => {
  const instance = await startInstance(t, await useServices(t))
  const { token, answers } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance, { rateLimitRpm: 2 })
    const answers = []
    for (let i = 0; i < 3; i++) answers.push(await instance.ask('GET', '/v1/verify', { token }))
    return { token, answers }
  })
  const refused = answers[2]!
  t.equal(refused.status, 429)
  await pause(Number(refused.headers.get('retry-after')) * 1000)
  const again = await instance.ask('GET', '/v1/verify', { token })
  t.equal(again.status, 200)
  t.equal(again.headers.get('x-ratelimit-remaining'), '1')
  t.equal(resetOf(again), resetOf(refused) + 60)
})

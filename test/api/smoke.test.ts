import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

t.test('a usable key is admitted and counted', async (t) => {
  const instance = await startInstance(t, await useServices(t))
  const caller = await makeCaller(instance, { rateLimitRpm: 2 })
  const first = await instance.ask('GET', '/v1/verify', { token: caller.token })
  t.equal(first.status, 200)
  t.equal(first.headers.get('x-ratelimit-remaining'), '1')
})

// A key that expires while every instance has it in its cache: refused from that second on, and not before.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const inTwoSeconds = () => Math.ceil(Date.now() / 1000) + 2

t.test(
  'a cached key is admitted until it expires and refused from that second on, by every instance',
  async (t) => {
    const services = await useServices(t)
    const instances = [await startInstance(t, services), await startInstance(t, services)]
    const user = await makeUser(instances[0]!)
    const expiresAt = inTwoSeconds()
    const keys = await Promise.all(
      [1, 2, 3].map(() => makeKey(instances[0]!, { userId: user.id, expiresAt })),
    )

    const until = (expiresAt + 1) * 1000
    const counts = { admitted: 0, refused: 0 }
    const wrong: string[] = []
    async function keepAsking(instance: Instance, token: string) {
      while (Date.now() < until) {
        const sentMs = Date.now()
        const { status, body } = await instance.ask('GET', '/v1/verify', { token })
        const answeredMs = Date.now()
        const admitted = status === 200 && body.expires_at === expiresAt
        if (admitted) counts.admitted++
        else counts.refused++
        // In the very moment both are right.
        if (sentMs >= expiresAt * 1000 && status !== 401)
          wrong.push(`${status} at ${sentMs - expiresAt * 1000} ms`)
        if (answeredMs < expiresAt * 1000 && !admitted)
          wrong.push(`${status} at ${answeredMs - expiresAt * 1000} ms`)
        await pause(10)
      }
    }
    await Promise.all(instances.flatMap((instance) => keys.map(({ token }) => keepAsking(instance, token))))
    t.same(wrong, [], 'admitted before, refused from the second on')
    t.ok(counts.admitted > 50 && counts.refused > 50, 'it was asked often on both sides')
    const { body } = await instances[1]!.ask('GET', '/v1/verify', { token: keys[0]!.token })
    const [entry] = await instances[0]!.service.stores.audit.find(body.error.request_id)
    t.match(entry, { reason: 'expired', key_id: keys[0]!.id })
  },
)

t.test('a cached key that nobody used around that second is refused at its next use', async (t) => {
  const services = await useServices(t)
  const a = await startInstance(t, services)
  const b = await startInstance(t, services)
  const user = await makeUser(a)
  const { token, expires_at } = await makeKey(a, { userId: user.id, expiresAt: inTwoSeconds() })
  for (const instance of [a, b]) t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200)
  await pause(expires_at! * 1000 - Date.now() + 1)
  for (const instance of [a, b]) t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 401)
})

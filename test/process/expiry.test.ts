// A key that expires while every instance has it cached: refused from that second on, and not before.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { type Instance, makeCaller, makeKey, makeUser, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const expired = (expiresAt: number) => Date.now() >= expiresAt * 1000

/** If the machine is too slow to use a key that expires this soon, again with one that expires later. */
async function soonEnough<T>(story: (expiresAt: number) => Promise<T | null>): Promise<T> {
  for (let inS = 2; ; inS *= 2) {
    const result = await story(Math.ceil(Date.now() / 1000) + inS)
    if (result !== null) return result
  }
}

t.test(
  'a cached key is admitted until it expires and refused from that second on, by every instance',
  async (t) => {
    const services = await useServices(t)
    const instances = [await startInstance(t, services), await startInstance(t, services)]
    const user = await makeUser(instances[0]!)
    const wrong: string[] = []

    async function keepAsking(instance: Instance, token: string, expiresAt: number) {
      let admissions = 0
      for (let refusals = 0; refusals < 30; ) {
        const sentMs = Date.now()
        const { status, body } = await instance.ask('GET', '/v1/verify', { token })
        const answeredMs = Date.now()
        const admitted = status === 200 && body.expires_at === expiresAt
        if (admitted) admissions++
        else refusals++
        // An answer around that moment may be either.
        if (sentMs >= expiresAt * 1000 && status !== 401)
          wrong.push(`${status} at ${sentMs - expiresAt * 1000} ms`)
        if (answeredMs < expiresAt * 1000 && !admitted)
          wrong.push(`${status} at ${answeredMs - expiresAt * 1000} ms`)
        await pause(10)
      }
      return admissions
    }

    const verified = (token: string) =>
      Promise.all(
        instances.map(async (instance) => (await instance.ask('GET', '/v1/verify', { token })).status),
      )

    const { token, id } = await soonEnough(async (expiresAt) => {
      const [unused, ...keys] = await Promise.all(
        [0, 1, 2, 3].map(() => makeKey(instances[0]!, { userId: user.id, expiresAt })),
      )
      const before = await verified(unused!.token)
      if (expired(expiresAt)) return null
      t.strictSame(before, [200, 200])
      const asking = instances.flatMap((instance) =>
        keys.map(({ token }) => keepAsking(instance, token, expiresAt)),
      )
      const admissions = await Promise.all(asking)
      t.strictSame(await verified(unused!.token), [401, 401], 'also one that was not used around that second')
      return Math.min(...admissions) > 0 ? keys[0]! : null
    })
    t.same(wrong, [], 'admitted before, refused from the second on')
    const { body } = await instances[1]!.ask('GET', '/v1/verify', { token })
    const [entry] = await instances[0]!.service.stores.audit.find(body.error.request_id)
    t.match(entry, { reason: 'expired', key_id: id })
  },
)

t.test('the clock of the database decides whether an expiry is in the future', async (t) => {
  const instance = await startInstance(t, await useServices(t))
  const { token, userId } = await makeCaller(instance)
  const target = await makeKey(instance, { userId })
  const realNow = Date.now
  t.teardown(() => {
    Date.now = realNow
  })
  const nowS = Math.floor(realNow() / 1000)
  for (const aheadS of [-90, 0, 90]) {
    Date.now = () => realNow() + aheadS * 1000
    for (const [inS, posted, patched] of [
      [60, 201, 200],
      [-60, 400, 400],
    ] as const) {
      const expires_at = nowS + inS
      const post = await instance.ask('POST', '/v1/keys', { token, json: { name: 'x', expires_at } })
      const patch = await instance.ask('PATCH', `/v1/keys/${target.id}`, { token, json: { expires_at } })
      t.strictSame([post.status, patch.status], [posted, patched], `${inS} s, by a clock ${aheadS} s ahead`)
      if (inS > 0) continue
      for (const { body } of [post, patch]) {
        t.match(body.error, { code: 'invalid_parameter', param: 'expires_at' })
        const toldS = Number(/it is now (\d+)/.exec(body.error.suggestion)![1])
        t.ok(Math.abs(toldS - realNow() / 1000) < 30, 'and it says what time it is there')
      }
    }
  }
})

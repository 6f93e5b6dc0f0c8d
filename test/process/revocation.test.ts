// Revoked means revoked: once a change has answered on one instance, the next request on another is decided by it, although
// that one has just had the key in its cache.
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { deleteUser, type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const rounds = 300
const atOnce = 6

async function twoInstances(t: Test) {
  const services = await useServices(t)
  return { services, a: await startInstance(t, services), b: await startInstance(t, services) }
}

const verify = (instance: Instance, token: string) => instance.ask('GET', '/v1/verify', { token })

/** What went wrong, told once for each kind; a round is a story of its own. */
async function allRounds(t: Test, round: (wrong: (what: string) => void) => Promise<void>) {
  const faults = new Map<string, number>()
  const wrong = (what: string) => void faults.set(what, (faults.get(what) ?? 0) + 1)
  let left = rounds
  const work = async () => {
    while (left-- > 0) await round(wrong)
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  t.same([...faults], [], `${rounds} rounds without a fault`)
}

t.test('a change of a key on one instance decides the next request on another, 300 times over', async (t) => {
  const { a, b } = await twoInstances(t)
  await allRounds(t, async (wrong) => {
    const user = await makeUser(a)
    const manager = await makeKey(a, { userId: user.id })
    const key = await makeKey(a, { userId: user.id, rateLimitRpm: 500 })
    const patch = (json: object) => a.ask('PATCH', `/v1/keys/${key.id}`, { token: manager.token, json })
    if ((await verify(b, key.token)).status !== 200) wrong('not admitted at first')

    await patch({ rate_limit_rpm: 77 })
    const limited = await verify(b, key.token)
    if (limited.headers.get('x-ratelimit-limit') !== '77') wrong('the limit is the old one')
    if (limited.body.rate_limit_rpm !== 77) wrong('the limit told is the old one')

    const expiresAt = Math.floor(Date.now() / 1000) + 1000
    await patch({ expires_at: expiresAt })
    if ((await verify(b, key.token)).body.expires_at !== expiresAt) wrong('the expiry is the old one')

    await patch({ name: 'renamed' })
    const { body } = await b.ask('GET', `/v1/keys/${key.id}`, { token: key.token })
    if (body.name !== 'renamed') wrong('the name is the old one')

    const { status } = await a.ask('DELETE', `/v1/keys/${key.id}`, { token: manager.token })
    if (status !== 200) wrong(`revocation answered ${status}`)
    if ((await verify(b, key.token)).status !== 401) wrong('admitted although revoked')

    if ((await verify(b, manager.token)).status !== 200) wrong('another key is refused')
    await deleteUser(a, user.id)
    if ((await verify(b, manager.token)).status !== 401) wrong('admitted although its owner is deleted')
  })
})

t.test('a limit lowered below what was used refuses the next request on another instance', async (t) => {
  const { a, b } = await twoInstances(t)
  for (;;) {
    const user = await makeUser(a)
    const manager = await makeKey(a, { userId: user.id })
    const key = await makeKey(a, { userId: user.id, rateLimitRpm: 10 })
    const used = [await verify(a, key.token), await verify(b, key.token), await verify(a, key.token)]
    await a.ask('PATCH', `/v1/keys/${key.id}`, { token: manager.token, json: { rate_limit_rpm: 2 } })
    const next = await verify(b, key.token)
    const resets = [...used, next].map(({ headers }) => headers.get('x-ratelimit-reset'))
    if (new Set(resets).size > 1) continue // the minute ended in between
    t.same(
      used.map(({ status }) => status),
      [200, 200, 200],
    )
    t.equal(next.status, 429)
    return
  }
})

t.test('under a flood on another instance no request begun after the revocation is admitted', async (t) => {
  const { a, b } = await twoInstances(t)
  const user = await makeUser(a)
  const manager = await makeKey(a, { userId: user.id })
  const late: number[] = []
  let asked = 0
  for (let round = 0; round < 30; round++) {
    const key = await makeKey(a, { userId: user.id })
    let revokedMs = Number.POSITIVE_INFINITY
    const flood = Array.from({ length: 8 }, async () => {
      for (let after = 0; after < 3; ) {
        const startMs = performance.now()
        const { status } = await verify(b, key.token)
        asked++
        if (startMs > revokedMs) after++
        if (startMs > revokedMs && status !== 401) late.push(status)
      }
    })
    await verify(b, key.token)
    await a.ask('DELETE', `/v1/keys/${key.id}`, { token: manager.token })
    revokedMs = performance.now()
    await Promise.all(flood)
  }
  t.same(late, [])
  t.ok(asked > 30 * 8 * 3)
})

t.test(
  'what a revocation answered is in Postgres, however many keys are made and listed meanwhile',
  async (t) => {
    const { a, services } = await twoInstances(t)
    const user = await makeUser(a)
    const { token } = await makeKey(a, { userId: user.id })
    const answers = new Map<string, number>()
    const revoked: string[] = []
    const ask = async (method: string, path: string, json?: object) => {
      const answer = await a.ask(method, path, { token, ...(json && { json }) })
      const kind = `${method} ${answer.status}`
      answers.set(kind, (answers.get(kind) ?? 0) + 1)
      return answer
    }
    const work = async () => {
      for (let i = 0; i < 15; i++) {
        const { status, body } = await ask('POST', '/v1/keys', { name: 'short-lived' })
        if (status !== 201) continue
        await ask('GET', '/v1/keys?limit=1')
        const { status: gone } = await ask('DELETE', `/v1/keys/${body.id}`)
        if (gone === 200) revoked.push(body.id)
      }
    }
    await Promise.all(Array.from({ length: 12 }, work))
    t.strictSame(Object.fromEntries(answers), { 'POST 201': 180, 'GET 200': 180, 'DELETE 200': 180 })

    const sql = postgres(services.databaseUrl, { max: 1, onnotice: () => {} })
    t.teardown(() => sql.end({ timeout: 1 }))
    const lost = await sql`select id from api_keys where id = any (${revoked}) and revoked_at is null`
    t.equal(lost.length, 0, 'no revocation is lost')
    const open = await sql`
    select query from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`
    t.same(
      open.map(({ query }) => query),
      [],
      'no connection was left in a transaction',
    )
  },
)

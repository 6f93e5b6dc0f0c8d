// Requests at the same time: each is answered as if it were alone, and what a response says is committed.
import { connect } from 'node:net'
import t from 'tap'
import { deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { countKeys } from './count-keys.ts'
import { expectError } from './expect-error.ts'

const services = await useServices(t)
const env = { MAX_KEYS_PER_USER: '60' }
const instance = await startInstance(t, services, env)
const other = await startInstance(t, services, env)
const sql = openDatabase(t, services.databaseUrl)

const create = (token: string, name: string, { ask } = instance) =>
  ask('POST', '/v1/keys', { token, json: { name } })
const list = <T>(length: number, make: (i: number) => T) => Array.from({ length }, (_, i) => make(i))

t.test('creations, changes and revocations are committed when they are answered', async (t) => {
  const { id, token } = await makeCaller(instance)
  const client = async (number: number) => {
    for (let round = 0; round < 8; round++) {
      const reads = [`/v1/keys/${id}`, '/v1/keys?limit=5'].map((path) => instance.ask('GET', path, { token }))
      const created = await create(token, `client ${number}, round ${round}`)
      const path = `/v1/keys/${created.body.id}`
      const changed = await instance.ask('PATCH', path, { token, json: { rate_limit_rpm: 5 } })
      const revoked = await instance.ask('DELETE', path, { token })
      const answers = [...(await Promise.all(reads)), created, changed, revoked]
      t.same(
        answers.map(({ status }) => status),
        [200, 200, 201, 200, 200],
      )
      // Another connection sees only what is committed.
      const [row] = await sql`
        select rate_limit_rpm, revoked_at is not null as revoked from api_keys where id = ${created.body.id}`
      t.same(row, { rate_limit_rpm: 5, revoked: true })
    }
  }
  await Promise.all(list(12, client))
  const open = await sql`
    select query from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`
  t.same([...open], [], 'no connection was left in a transaction')
})

t.test('changes of different members are all made', async (t) => {
  const { id, token } = await makeCaller(instance)
  const change = { name: 'renamed', rate_limit_rpm: 77_000, expires_at: 4_000_000_000 }
  const answers = await Promise.all(
    Object.entries(change).map(([member, value]) =>
      instance.ask('PATCH', `/v1/keys/${id}`, { token, json: { [member]: value } }),
    ),
  )
  for (const { status } of answers) t.equal(status, 200)
  t.match((await instance.ask('GET', `/v1/keys/${id}`, { token })).body, change)
})

t.test('creations on two instances never pass MAX_KEYS_PER_USER', async (t) => {
  const { token, userId } = await makeCaller(instance)
  for (let keys = 1; keys < 55; keys++) await makeKey(instance, { userId })
  const answers = await Promise.all(list(20, (i) => create(token, `${i}`, i % 2 ? instance : other)))
  t.equal(answers.filter(({ status }) => status === 201).length, 5)
  for (const answer of answers) if (answer.status !== 201) expectError(t, answer, 'key_limit_reached')
  t.equal(await countKeys(sql, userId), 60)
})

t.test("creations racing with their user's deletion leave no usable key", async (t) => {
  const { token, userId } = await makeCaller(instance)
  const racing = list(20, (i) => create(token, `racing ${i}`))
  await deleteUser(instance, userId)
  for (const { status, body } of await Promise.all(racing)) {
    if (status !== 201) t.equal(status, 401)
    else t.equal((await instance.ask('GET', '/v1/verify', { token: body.plain_key })).status, 401)
  }
})

/**
 * Sends the head of a request, waits until it was authenticated and counted, runs `meanwhile`, and
 * then sends the body.
 */
async function interrupted(request: string, token: string, json: unknown, meanwhile: () => Promise<unknown>) {
  const body = JSON.stringify(json)
  const socket = connect(instance.port, '127.0.0.1')
  let raw = ''
  socket.on('data', (bytes) => {
    raw += bytes
  })
  const ended = new Promise((resolve) => socket.once('close', resolve))
  const headers = ['Host: x', 'Connection: close', 'Content-Type: application/json']
  headers.push(`Authorization: Bearer ${token}`, `Content-Length: ${body.length}`)
  socket.write(`${request} HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n`)
  // Two requests have been counted: the one above, and one of these.
  for (let remaining = 1_000_000; remaining > 1_000_000 - 2; ) {
    const { headers } = await instance.ask('GET', '/v1/verify', { token })
    remaining = Number(headers.get('x-ratelimit-remaining'))
  }
  await meanwhile()
  socket.write(body)
  await ended
  return raw
}

const spoil: Record<string, (caller: { id: string; token: string; userId: string }) => Promise<unknown>> = {
  revoked: ({ id, token }) => instance.ask('DELETE', `/v1/keys/${id}`, { token }),
  owner_deleted: ({ userId }) => deleteUser(instance, userId),
}

for (const [reason, meanwhile] of Object.entries(spoil)) {
  t.test(`a key that is ${reason} before the body arrives changes and creates nothing`, async (t) => {
    for (const change of [
      ...['PATCH /v1/keys/:id', 'DELETE /v1/keys/:id', 'POST /v1/keys', 'POST /v1/keys/:id/rotate'],
    ]) {
      const caller = await makeCaller(instance)
      const target = await makeKey(instance, { userId: caller.userId, name: 'before' })
      const json = change.endsWith('rotate') ? { expires_in: 60 } : { name: 'after' }
      const asked = change.replace(':id', target.id)
      const raw = await interrupted(asked, caller.token, json, () => meanwhile(caller))
      t.match(raw, /^HTTP\/1\.1 401 /, change)
      t.notMatch(raw, /x-ratelimit/i)
      const keys = await instance.service.stores.keys.list(caller.userId, { limit: 100 })
      t.equal(keys!.length, 2)
      t.equal(keys!.find(({ id }) => id === target.id)!.name, 'before')
      const [entry] = await instance.service.stores.audit.find(/x-request-id: (req_\w+)/i.exec(raw)![1]!)
      t.match(entry, { event: 'auth.refused', reason, key_id: caller.id, user_id: caller.userId })
    }
  })
}

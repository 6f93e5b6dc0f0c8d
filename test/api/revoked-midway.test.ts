// A request is authenticated by its head; its body may come long after. What its key may do is decided again with the change.
import { connect } from 'node:net'
import t from 'tap'
import { deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)

/** Sends a request's head, lets something happen, then sends its body. Gives the whole answer. */
async function withPause(
  method: string,
  path: string,
  token: string,
  json: unknown,
  meanwhile: () => Promise<unknown>,
) {
  const body = JSON.stringify(json)
  const socket = connect(instance.port, '127.0.0.1')
  let answer = ''
  socket.on('data', (bytes) => {
    answer += bytes
  })
  const ended = new Promise((resolve) => socket.once('close', resolve))
  socket.write(
    `${method} ${path} HTTP/1.1\r\nHost: latchkey.test\r\nConnection: close\r\nAuthorization: Bearer ${token}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`,
  )
  // Counted by now: what is decided later is decided with the change.
  const { keyId } = await countedFirst(token)
  t.ok(keyId)
  await meanwhile()
  socket.write(body)
  await ended
  return { status: Number(answer.slice(9, 12)), answer }
}

/** Another request with the same key, answered after the first was counted (one script call counts both, in order). */
async function countedFirst(token: string) {
  for (;;) {
    const { headers, body } = await instance.ask('GET', '/v1/verify', { token })
    if (Number(headers.get('x-ratelimit-remaining')) <= 1_000_000 - 2) return { keyId: body.key_id }
  }
}

const ways: Record<string, (caller: { id: string; token: string; userId: string }) => Promise<unknown>> = {
  revoked: ({ id, token }) => instance.ask('DELETE', `/v1/keys/${id}`, { token }),
  owner_deleted: ({ userId }) => deleteUser(instance, userId),
}

for (const [reason, meanwhile] of Object.entries(ways)) {
  t.test(
    `a change whose key is ${reason} before its body has come is refused, and changes nothing`,
    async (t) => {
      const caller = await makeCaller(instance)
      const other = await makeKey(instance, { userId: caller.userId, name: 'before' })
      const { status, answer } = await withPause(
        'PATCH',
        `/v1/keys/${other.id}`,
        caller.token,
        { name: 'after' },
        () => meanwhile(caller),
      )
      t.equal(status, 401)
      t.notMatch(answer, /x-ratelimit/i)
      t.equal((await instance.service.stores.keys.get(other.id, caller.userId))!.name, 'before')
      const requestId = /x-request-id: (req_\w+)/i.exec(answer)![1]!
      const [entry] = await instance.service.stores.audit.find(requestId)
      t.match(entry, { event: 'auth.refused', reason, key_id: caller.id })
    },
  )

  t.test(`a creation whose key is ${reason} before its body has come mints nothing`, async (t) => {
    const caller = await makeCaller(instance)
    const { status } = await withPause('POST', '/v1/keys', caller.token, { name: 'never' }, () =>
      meanwhile(caller),
    )
    t.equal(status, 401)
    const keys = await instance.service.stores.keys.list(caller.userId, { limit: 100 })
    t.notOk(keys!.some(({ name }) => name === 'never'))
  })
}

// GET /v1/verify, which a gateway asks with the method, path and body of the request that it may let through.
import { once } from 'node:events'
import { METHODS } from 'node:http'
import { connect } from 'node:net'
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { sendBytes, sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const { id, userId, token } = await makeCaller(instance)
const authorization = `Authorization: Bearer ${token}`
const send = (method: string, target: string, headers: string[] = [], body?: string) =>
  sendRaw(instance.port, method, target, [authorization, ...headers], body)
const verified = { key_id: id, user_id: userId, rate_limit_rpm: 1_000_000, expires_at: null }

t.test('a usable key is 200, and body and headers name its owner', async (t) => {
  const expiresAt = Math.floor(Date.now() / 1000) + 3600
  const { id, token, userId } = await makeCaller(instance, { rateLimitRpm: 30, expiresAt })
  const answer = await instance.ask('GET', '/v1/verify', { token })
  t.equal(answer.status, 200)
  t.same(answer.body, { key_id: id, user_id: userId, rate_limit_rpm: 30, expires_at: expiresAt })
  t.equal(answer.headers.get('x-key-id'), id)
  t.equal(answer.headers.get('x-user-id'), userId)
  expectRated(t, answer)
  t.equal(answer.headers.get('x-ratelimit-remaining'), '29')
})

t.test('requests at once are each answered with their own key', async (t) => {
  const callers = await Promise.all(Array.from({ length: 20 }, () => makeCaller(instance)))
  const asked = Array.from({ length: 200 }, (_, i) => callers[i % callers.length]!)
  const answers = await Promise.all(asked.map(({ token }) => instance.ask('GET', '/v1/verify', { token })))
  t.same(
    answers.map(({ body, headers }) => [body.key_id, headers.get('x-user-id')]),
    asked.map(({ id, userId }) => [id, userId]),
  )
})

t.test('every method and every path below /v1/verify get the same answer', async (t) => {
  const methods = METHODS.filter((method) => method !== 'CONNECT')
  const paths = ['/orders/7?a=1&a=2', '/', '/../keys', '/%zz', '/v1/keys', '/a//b', '/%2e%2e']
  const asked = [
    ...methods.map((method) => [method, '/v1/verify']),
    ...['GET', 'POST', 'PURGE'].flatMap((method) => paths.map((path) => [method, `/v1/verify${path}`])),
  ]
  for (const [method, path] of asked) {
    const answer = await send(method!, path!)
    t.equal(answer.status, 200, `${method} ${path}`)
    expectRated(t, answer)
    t.equal(answer.headers.get('x-key-id'), id)
    t.equal(answer.headers.get('x-user-id'), userId)
    if (method !== 'HEAD') t.same(answer.body, verified)
  }
})

t.test('a body of any kind is ignored, and does not change the next request of its connection', async (t) => {
  const types = ['application/json', 'text/plain', 'multipart/form-data; boundary=x', 'nonsense', undefined]
  const post = `POST /v1/verify HTTP/1.1\r\nHost: x\r\n${authorization}\r\nTransfer-Encoding: chunked\r\n\r\n`
  const next = `GET /v1/verify/next HTTP/1.1\r\nHost: x\r\n${authorization}\r\nConnection: close\r\n\r\n`
  const { raw } = await sendBytes(instance.port, `${post}5\r\nhello\r\n0\r\n\r\n${next}`)
  t.equal(raw.match(/HTTP\/1.1 200 OK/g)?.length, 2)
  for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PROPFIND']) {
    for (const type of types) {
      const headers = type === undefined ? [] : [`Content-Type: ${type}`]
      for (const body of ['{"name":', 'x'.repeat(20_000), ''])
        t.equal((await send(method, '/v1/verify/a', headers, body)).status, 200, `${method} ${type}`)
    }
  }
})

t.test('a response that ends the connection waits for the rest of an ignored body', async (t) => {
  for (const line of ['POST /v1/verify', 'PUT /v1/verify/orders', 'DELETE /v1/verify']) {
    const client = connect(instance.port, '127.0.0.1')
    t.teardown(() => client.destroy())
    let received = ''
    client.on('data', (piece) => {
      received += piece
    })
    const closed = once(client, 'close')
    const head = `${line} HTTP/1.1\r\nHost: x\r\n${authorization}\r\nConnection: close\r\n`
    client.write(`${head}Content-Length: 4\r\n\r\nab`)
    // It has had time to be answered.
    for (let others = 0; others < 3; others++) await send('POST', '/v1/verify')
    t.equal(received, '')
    client.write('cd')
    await closed
    t.match(received, /^HTTP\/1.1 200 OK/)
  }
})

t.test('/v1/verify refuses like any other route', async (t) => {
  const refused = await sendRaw(instance.port, 'POST', '/v1/verify/orders', ['Content-Type: text/plain'], 'x')
  expectError(t, refused, 'unauthorized')
  const limited = await makeCaller(instance, { rateLimitRpm: 1 })
  const ask = () => instance.ask('PUT', '/v1/verify/x', { token: limited.token, body: 'x' })
  const answers = [await ask(), await ask(), await ask()]
  const over = answers.find(({ status }) => status === 429)!
  expectError(t, over, 'rate_limit_exceeded')
  expectRated(t, over)
})

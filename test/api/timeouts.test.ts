// A request that never becomes whole is ended with 408: by Node's own timeouts, set short here, on a real connection.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, isRated } from './expect-error.ts'
import { sendBytes } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const { port } = instance
const { token } = await makeCaller(instance)
const { server } = instance.service.app
const begin = ['POST /v1/keys HTTP/1.1', 'Host: latchkey.test', 'Content-Type: application/json']

t.test('the service bounds how long a request may take to arrive', async (t) => {
  t.ok(server.headersTimeout > 0 && server.headersTimeout <= 60_000)
  t.ok(server.requestTimeout > 0 && server.requestTimeout <= 120_000)
  server.headersTimeout = 200
  server.requestTimeout = 400
})

t.test('headers that stop coming are 408', async (t) => {
  const answer = await sendBytes(port, `${begin.join('\r\n')}\r\nX-Never`)
  expectError(t, answer, 'request_timeout')
  t.notOk(isRated(answer))
  t.equal(answer.headers.get('connection'), 'close')
})

t.test('a body that stops coming is 408', async (t) => {
  const rest = [`Authorization: Bearer ${token}`, 'Content-Length: 100', '', '{"name":']
  const answer = await sendBytes(port, [...begin, ...rest].join('\r\n'))
  expectError(t, answer, 'request_timeout')
  t.equal(answer.headers.get('connection'), 'close')
})

t.test('chunks that stop coming are 408', async (t) => {
  const rest = [`Authorization: Bearer ${token}`, 'Transfer-Encoding: chunked', '', '2', '{}', '']
  const answer = await sendBytes(port, [...begin, ...rest].join('\r\n'))
  expectError(t, answer, 'request_timeout')
})

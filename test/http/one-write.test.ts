// Our response leaves in one write, where that of Node 20 and 22 takes two, and sends the same bytes.
import { once } from 'node:events'
import { createServer, type RequestListener, type ServerOptions } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { OneWriteResponse } from '../../src/http/one-write.ts'

const text = 'é'.repeat(100)
const headers = { 'content-type': 'text/plain', 'content-length': Buffer.byteLength(text), date: 'today' }

/** What a connection receives for these requests, and how many chunks each write of the server had. */
async function exchange(t: Test, options: ServerOptions, handle: RequestListener, requests: string) {
  const server = createServer({ keepAliveTimeout: 75_000, ...options }, handle)
  const writes: number[] = []
  server.on('connection', (socket: Socket) => {
    for (const [method, count] of [
      ['_write', () => 1],
      ['_writev', (chunks: unknown) => (chunks as unknown[]).length],
    ] as const) {
      const write = socket[method]!.bind(socket) as (...args: unknown[]) => void
      socket[method] = (...args: unknown[]) => {
        writes.push(count(args[0]))
        write(...args)
      }
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close().closeAllConnections())
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
  client.write(requests)
  const received: Buffer[] = []
  for await (const chunk of client) received.push(chunk)
  return { received: Buffer.concat(received).toString(), writes }
}

const request = (method = 'GET', more = '') => `${method} / HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`
const last = (method?: string) => request(method, 'Connection: close\r\n')
const ours = { ServerResponse: OneWriteResponse }

t.test('headers and text leave in one write', async (t) => {
  const finished: string[] = []
  const handle: RequestListener = (_request, response) => {
    response.on('finish', () => finished.push('event'))
    response.writeHead(200, headers).end(text, 'utf8', () => finished.push('callback'))
  }
  const { received, writes } = await exchange(t, ours, handle, last())
  t.match(received, text)
  t.strictSame(writes, [1])
  t.strictSame(finished.sort(), ['callback', 'event'])
})

t.test('every response has the bytes of Node’s own', async (t) => {
  let calls = 0
  const handlers: Record<string, RequestListener> = {
    text: (_request, response) => response.writeHead(200, headers).end(text),
    'text as latin1': (_request, response) =>
      response.writeHead(200, { ...headers, 'content-length': text.length }).end(text, 'latin1'),
    'text without a length': (_request, response) => response.writeHead(200, { date: 'today' }).end(text),
    'text and no headers yet': (_request, response) => response.setHeader('date', 'today').end(text),
    'text and a callback': (_request, response) => response.writeHead(200, headers).end(text, () => calls++),
    'an empty text': (_request, response) =>
      response.writeHead(200, { ...headers, 'content-length': 0 }).end(''),
    bytes: (_request, response) => response.writeHead(200, headers).end(Buffer.from(text)),
    nothing: (_request, response) => response.writeHead(204, { date: 'today' }).end(),
    'text in parts': (_request, response) => {
      response.writeHead(200, headers).write(text.slice(0, 50))
      response.end(text.slice(50))
    },
    'much text': (_request, response) =>
      response.writeHead(200, { date: 'today', 'content-length': 8_000_000 }).end('x'.repeat(8_000_000)),
    'late, so that the next request waits': (_request, response) =>
      void setImmediate(() => response.writeHead(200, headers).end(text)),
  }
  for (const [name, handle] of Object.entries(handlers)) {
    for (const requests of [last(), last('HEAD'), request() + request('HEAD') + last()]) {
      const [{ received }, { received: expected }] = [
        await exchange(t, ours, handle, requests),
        await exchange(t, {}, handle, requests),
      ]
      t.ok(received === expected, `${name}: ${requests.split('\r\n')[0]}`)
    }
  }
  t.equal(calls, 10, 'a callback is called once')
})

// Connections whose clients do not read what they asked for.
import { once } from 'node:events'
import type { RequestListener, Server } from 'node:http'
import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { createApp } from '../../src/http/app.ts'
import { closeUnread } from '../../src/http/unread.ts'
import { createOps } from '../../src/ops/listener.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import { setClock } from '../clock.ts'
import { until } from '../process/until.ts'

/** More than a connection can buffer. */
const large = Buffer.alloc(16_777_216)

async function startServer(t: Test, handle: RequestListener) {
  const clock = setClock(t)
  const server = createServer(handle)
  closeUnread(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return { clock, ask: () => ask(server) }
}

/** A client that has asked and reads nothing, and the server's side of its connection. */
async function ask(server: Server, path = '/', times = 1): Promise<[client: Socket, connection: Socket]> {
  const accepted = once(server, 'connection')
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause()
  client.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(times))
  const asked = once(server, 'request')
  const [connection] = await accepted
  await asked
  return [client, connection]
}

t.test('a response that a client has not read after a minute ends its connection', async (t) => {
  const { clock, ask } = await startServer(t, (_request, response) => response.end(large))
  const [[, stuck], [reading, read]] = [await ask(), await ask()]
  clock.advance(60_000)
  reading.resume()
  await until('it has read all', () => read.writableLength === 0)
  clock.advance(59_999)
  t.notOk(stuck.destroyed)
  clock.advance(1)
  t.ok(stuck.destroyed)
  clock.advance(600_000)
  t.notOk(read.destroyed, 'an idle connection stays open')
})

t.test('a response that is read slowly, and one that is still due, stay', async (t) => {
  const responses: ServerResponse[] = []
  const { clock, ask } = await startServer(t, (_request, response) => responses.push(response))
  const [[slow, reading], [, due]] = [await ask(), await ask()]
  responses[0]!.end(Buffer.alloc(large.length * 6))
  let untilBytes = 0
  slow.on('data', () => slow.bytesRead >= untilBytes && slow.pause())
  clock.advance(60_000)
  for (let minute = 1; minute <= 4; minute++) {
    untilBytes += large.length
    slow.resume()
    await until('it has read more, or lost its connection', () => slow.isPaused() || slow.closed)
    clock.advance(60_000)
  }
  t.notOk(reading.destroyed || due.destroyed)
  t.ok(reading.writableLength > 0, 'it has not read all')
  clock.advance(60_000)
  t.ok(reading.destroyed, 'it has stopped reading')
  t.notOk(due.destroyed)
})

t.test('a connection that has ended is looked at no more', async (t) => {
  const { clock, ask } = await startServer(t, (_request, response) => response.end())
  const [client, connection] = await ask()
  client.destroy()
  await until('it has ended', () => connection.closed)
  let looks = 0
  Object.defineProperty(connection, 'writableLength', { get: () => ++looks })
  clock.advance(60_000)
  t.equal(looks, 0)
})

t.test('both listeners end connections that are not read, also with requests sent ahead', async (t) => {
  const clock = setClock(t)
  const stores = { tokenFormat: tokenFormat('lk') }
  const rateLimits = { defaultRateLimitRpm: 1000, maxRateLimitRpm: 1000 }
  const config = { baseUrl: null, port: 0, trustProxy: false, ...rateLimits }
  const app = createApp({ config, onAnswer() {}, ...stores } as never)
  const ops = createOps({
    config: { opsTokens: [], metricsToken: null, githubScanningKeysFile: null, ...rateLimits },
    service: { stores },
    docsBase: app.docsBase,
    state: () => 'ready',
  } as never)
  for (const [listener, path] of [
    [app, '/docs'],
    [ops, '/admin/openapi.json'],
  ] as const) {
    t.teardown(() => listener.close())
    await listener.listen({ host: '127.0.0.1', port: 0 })
    const [, connection] = await ask(listener.server, path, 5000)
    await until('the client has fallen behind', () => connection.writableLength > 0)
    await until('its connection is closed', () => {
      clock.advance(60_000)
      return connection.destroyed
    })
    t.pass(path)
  }
})

// A drain ends connections without failing a request. On a bare node:http server, with requests
// sent as bytes.
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { createDrain } from '../../src/http/drain.ts'
import { setClock } from '../clock.ts'
import { until } from '../process/until.ts'

/** More than a connection can buffer. */
const large = 'x'.repeat(16_777_216)

/**
 * A server that answers /slow when the test says so, /large at once, and everything else once the
 * whole request has arrived.
 */
async function startServer(t: Test) {
  const slow: ServerResponse[] = []
  const due = new Map<Socket, ServerResponse>()
  const asked: Socket[] = []
  const server = createServer((request, response) => {
    due.set(request.socket, response)
    response.once('close', () => due.delete(request.socket))
    if (request.url === '/slow') slow.push(response)
    else if (request.url === '/large') response.end(large)
    else request.resume().once('end', () => response.end('fast'))
  })
  server.keepAliveTimeout = 0
  const drain = createDrain(server, (connection) => {
    asked.push(connection)
    return due.get(connection) ?? null
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })

  /** Resolves when the server has read all of `bytes`. */
  async function open(bytes = '') {
    const accepted = once(server, 'connection')
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    const client = { socket, received: '', closed: false, send }
    socket.on('data', (piece) => {
      client.received += piece
    })
    socket.on('close', () => {
      client.closed = true
    })
    await once(socket, 'connect')
    const [serverSide] = (await accepted) as [Socket]
    await send(bytes)
    return client

    async function send(more: string) {
      const bytesRead = serverSide.bytesRead + more.length
      socket.write(more)
      await until('the server has read it', () => serverSide.bytesRead === bytesRead)
    }
  }

  async function openUsed() {
    const client = await open(get('/'))
    await until('the response has come', () => client.received.endsWith('fast'))
    return client
  }
  return { server, drain, slow, asked, open, openUsed }
}

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`
const halfHead = 'GET / HTTP/1.1\r\nHost'
const halfBody = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nha'
const saysClose = /^connection: close\r$/im

t.test('before a drain a connection stays open for the next request', async (t) => {
  const { openUsed } = await startServer(t)
  const { socket, received } = await openUsed()
  t.notMatch(received, saysClose)
  socket.write(get('/'))
  await once(socket, 'data')
})

t.test('a connection that has ended is forgotten', async (t) => {
  const { server, drain, asked, openUsed } = await startServer(t)
  const { socket } = await openUsed()
  socket.end()
  await until('it has ended', async () => (await promisify(server.getConnections).call(server)) === 0)
  drain.start()
  t.equal(asked.length, 0)
})

t.test('while draining every request is answered and every response says connection: close', async (t) => {
  const { drain, slow, open, openUsed } = await startServer(t)
  const [used, underWay] = [await openUsed(), await open(get('/slow'))]
  used.received = ''
  drain.start()
  const fresh = await open(get('/'))
  used.socket.write(get('/large'))
  slow[0]!.end('slow')
  for (const client of [used, underWay, fresh]) {
    await until('the response has ended the connection', () => client.closed)
    t.match(client.received, /^HTTP\/1\.1 200 OK\r\n/)
    t.match(client.received, saysClose)
  }
})

t.test('finish refuses new connections and resolves when the requests under way are answered', async (t) => {
  const { drain, slow, open, openUsed } = await startServer(t)
  const [idle, underWay] = [await openUsed(), await open(get('/slow'))]
  drain.start()
  const arriving = [await open(halfHead), await open(halfBody)]
  let isFinished = false
  const finished = drain.finish().then(() => {
    isFinished = true
  })
  await until('the idle connection is closed', () => idle.closed)
  await t.rejects(open(), 'the listener is closed')

  arriving[0]!.socket.write(': x\r\n\r\n')
  arriving[1]!.socket.write('lf')
  for (const client of arriving) {
    await until('it is answered', () => client.closed)
    t.match(client.received, /fast$/)
    t.match(client.received, saysClose)
  }
  t.notOk(isFinished || underWay.closed, 'one request is still under way')

  slow[0]!.end('slow')
  await finished
  await until('its client has read the response', () => underWay.closed)
  t.match(underWay.received, saysClose)
  t.match(underWay.received, /slow$/)
})

t.test('a request whose head has half arrived when the drain begins is answered', async (t) => {
  const { drain, open, openUsed } = await startServer(t)
  const clients = [await open(halfHead), await openUsed()]
  await clients[1]!.send(halfHead)
  const idle = await openUsed()
  drain.start()
  const finished = drain.finish()
  await until('the idle connection is closed', () => idle.closed)
  for (const client of clients) {
    client.received = ''
    client.socket.write(': x\r\n\r\n')
    await until('it is closed', () => client.closed)
    t.match(client.received, /fast$/)
    t.match(client.received, saysClose)
  }
  await finished
})

t.test('finish gives a silent connection 300 ms and an unfinished request 4 s', async (t) => {
  const { drain, slow, open, openUsed } = await startServer(t)
  const clock = setClock(t)
  const [underWay, idle] = [await open(get('/slow')), await openUsed()]
  drain.start()
  const [silent, unfinishedHead, unfinishedBody] = [await open(), await open(halfHead), await open(halfBody)]
  clock.advance(300)
  const finished = drain.finish()
  await until('the connections have been checked', () => idle.closed)
  t.notOk(silent.closed)

  clock.advance(1)
  await until('the silent connection is closed', () => silent.closed)
  t.notOk(unfinishedHead.closed || unfinishedBody.closed)

  clock.advance(4000)
  await until('the unfinished ones are closed', () => unfinishedHead.closed && unfinishedBody.closed)
  t.notOk(underWay.closed, 'a request that has arrived is not cut off')
  slow[0]!.end('slow')
  await finished
})

t.test('finish gives a client 4 s to read its response', async (t) => {
  const { drain, slow, open, openUsed } = await startServer(t)
  const clock = setClock(t)
  const [reading, stuck, idle] = [await open(), await open(), await openUsed()]
  for (const { socket } of [reading, stuck]) socket.pause()
  await reading.send(get('/large'))
  // The second request waits for the first response.
  await stuck.send(get('/large') + get('/slow'))
  drain.start()
  const finished = drain.finish()
  await until('the connections have been checked', () => idle.closed)

  clock.advance(4000)
  reading.socket.resume()
  await until('it is answered', () => reading.closed)
  t.ok(reading.received.endsWith(`\r\n\r\n${large}`))
  t.notOk(slow[0]!.req.socket.destroyed)

  clock.advance(1)
  await finished
  t.ok(slow[0]!.req.socket.destroyed)
})

t.test('at the signal, `finish` closes the connections that are still in use', async (t) => {
  const { drain, slow, open, openUsed } = await startServer(t)
  const [underWay, half, idle] = [await open(get('/slow')), await open(halfBody), await openUsed()]
  const cutOff = new AbortController()
  const finished = drain.finish(cutOff.signal)
  await until('the connections have been checked', () => idle.closed)
  t.notOk(slow[0]!.req.socket.destroyed)
  cutOff.abort()
  await finished
  await until('both are closed', () => underWay.closed && half.closed)
  t.equal(underWay.received, '')
})

t.test('without connections finish resolves', async (t) => {
  const { drain } = await startServer(t)
  await drain.finish()
  t.pass('it has')
})

t.test('connections that wait to be accepted are accepted before the listener closes', async (t) => {
  const { server, drain } = await startServer(t)
  const { port } = server.address() as AddressInfo
  const received = Array.from({ length: 50 }, async () => {
    const socket = connect(port, '127.0.0.1')
    socket.write(get('/'))
    return text(socket)
  })
  await drain.finish()
  for (const response of await Promise.all(received)) t.match(response, /fast$/)
})

t.test('the listener stays open for two more turns', async (t) => {
  const { server, drain } = await startServer(t)
  const finished = drain.finish()
  await nextTurn()
  t.equal(server.listening, true)
  await finished
  t.equal(server.listening, false)
})

t.test('in a flood of new connections, the listener closes after 2 s', async (t) => {
  const server = createServer().removeAllListeners('connection')
  const drain = createDrain(server, () => null)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const clock = setClock(t)
  const startMs = performance.now()
  const flood = () => {
    if (!server.listening) return
    clock.advance(1)
    server.emit('connection', new Socket())
    setImmediate(flood)
  }
  flood()
  await drain.finish()
  const tookMs = performance.now() - startMs
  t.ok(tookMs >= 2000 && tookMs < 2020, `${tookMs} ms`)
})

t.test('a response whose headers have been sent already is finished', async (t) => {
  const { drain, slow, open } = await startServer(t)
  const underWay = await open(get('/slow'))
  slow[0]!.write('half')
  drain.start()
  slow[0]!.end('slow')
  await drain.finish()
  await until('its client has read the response', () => underWay.closed)
  t.match(underWay.received, /half[\s\S]*slow/)
})

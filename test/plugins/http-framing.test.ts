// When the requests of a connection run, and when it is closed. On real sockets; the test itself
// reports the time limits of Node's server.
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import Fastify, { type FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import errors from '../../plugins/errors.ts'
import httpFraming from '../../plugins/http-framing.ts'
import { OneWriteResponse } from '../../src/http/one-write.ts'
import { until } from '../process/until.ts'
import { answersOf, otherApp, raw } from './other-app.ts'

/** A client's socket, the server's end of it, and the statuses of the answers so far. */
async function open(t: Test, app: FastifyInstance, options = {}) {
  if (!app.server.listening) await app.listen({ host: '127.0.0.1', port: 0 })
  const accepted = once(app.server, 'connection')
  const { port } = app.server.address() as AddressInfo
  const client = connect({ port, host: '127.0.0.1', ...options })
  client.on('error', () => {})
  t.teardown(() => client.destroy())
  let text = ''
  client.on('data', (piece) => {
    text += piece.toString('latin1')
  })
  const [connection] = (await accepted) as [Socket]
  return { client, connection, statuses: () => answersOf(text).map(({ status }) => status) }
}

function hold() {
  let release = () => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  return { held, release }
}

const timeIsUp = (app: FastifyInstance, connection: Socket) =>
  app.server.emit(
    'clientError',
    Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }),
    connection,
  )

const get = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'
const halfBody = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{'

t.test('a request that arrives while its connection ends does not run', async (t) => {
  const { app } = otherApp(t)
  let served = 0
  app.get('/', async () => {
    served++
  })
  app.server.prependListener('request', ({ socket }) => socket.end())
  t.equal(await raw(app, get), '')
  t.equal(served, 0)
})

t.test('a request that offers an upgrade is the last one of its connection', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => 'ok')
  const lines = ['GET / HTTP/1.1', 'Host: x', 'Connection: upgrade', 'Upgrade: h2c', '', '']
  const [answer, ...others] = answersOf(await raw(app, lines.join('\r\n') + get))
  t.match(answer, { status: 200, headers: { connection: 'close' } })
  t.strictSame(others, [])
})

t.test('a transfer coding other than chunked, or in HTTP/1.0, is a 400', async (t) => {
  const { app } = otherApp(t)
  app.post('/', async () => 'ok')
  for (const [version, coding, status] of [
    ['1.1', 'Chunked', 200],
    ['1.1', 'gzip, chunked', 400],
    ['1.1', 'gzip\r\nTransfer-Encoding: chunked', 400],
    ['1.0', 'chunked', 400],
  ] as const) {
    const lines = [`POST / HTTP/${version}`, 'Host: x', `Transfer-Encoding: ${coding}`]
    const head = [...lines, 'Content-Type: application/json', 'Connection: close'].join('\r\n')
    const answers = answersOf(await raw(app, `${head}\r\n\r\n2\r\n{}\r\n0\r\n\r\n`))
    t.strictSame(
      answers.map((one) => one.status),
      [status],
      `${coding} in ${version}`,
    )
  }
})

t.test('it refuses an application that speaks HTTP/2', async (t) => {
  const app = Fastify({ http2: true })
  await app.register(errors, { docsBase: 'http://docs/' })
  await t.rejects(async () => app.register(httpFraming, { newRequestId: () => 'req_1' }), /is for HTTP\/1/)
})

t.test('other headers with names of the same length change nothing', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => 'ok')
  const { client, statuses } = await open(t, app)
  const lines = ['GET / HTTP/1.1', 'Host: x', 'From: a/b', 'Referer: x', 'If-Modified-Since: x', '', '']
  client.write(lines.join('\r\n').repeat(2))
  await until('both are answered', () => statuses().length === 2)
  t.strictSame(statuses(), [200, 200])
})

t.test('a connection is read on when its requests were answered at once', async (t) => {
  const { app } = otherApp(t)
  app.get('/', (_request, reply) => {
    reply.send('ok')
  })
  const { client, statuses } = await open(t, app)
  for (const count of [2, 4]) {
    client.write(get + get)
    await until('both are answered', () => statuses().length === count)
  }
})

for (const [kind, request] of [
  ['without a body', get],
  ['with a body', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/odd\r\nContent-Length: 2\r\n\r\n{}'],
] as const)
  t.test(`nothing is read of a connection while requests ${kind} wait on it`, async (t) => {
    const { app } = otherApp(t)
    app.addContentTypeParser('text/odd', (_request, payload, done) => payload.on('end', done).resume())
    const releases: (() => void)[] = []
    let holds = true
    async function handler() {
      const { held, release } = hold()
      releases.push(release)
      if (holds) await held
      return 'ok'
    }
    app.get('/', handler)
    app.post('/', handler)
    const { client, connection, statuses } = await open(t, app)
    const count = 10_000
    client.write(request.repeat(count))
    await until('the first one runs', () => releases.length === 1)
    const { bytesRead } = connection
    for (let answered = 0; answered < 20; answered++) {
      releases[answered]!()
      await until('the next one runs', () => releases.length === answered + 2)
    }
    t.equal(connection.bytesRead, bytesRead)
    holds = false
    releases[20]!()
    client.end()
    await once(client, 'end')
    t.equal(statuses().length, count)
  })

t.test('each request that has waited runs in a turn of its own', async (t) => {
  const { app } = otherApp(t)
  const ranIn: number[] = []
  let turns = 0
  const count = () => {
    turns++
    counting = setImmediate(count)
  }
  let counting = setImmediate(count)
  t.teardown(() => clearImmediate(counting))
  app.get('/', (_request, reply) => {
    ranIn.push(turns)
    reply.send('ok')
  })
  const { client, statuses } = await open(t, app)
  client.end(get.repeat(100))
  await once(client, 'end')
  t.equal(statuses().length, 100)
  t.equal(new Set(ranIn).size, 100)
})

for (const [what, before] of [
  ['a request', ''],
  ['a request that waits', get],
] as const)
  t.test(`chunks of ${what} that arrive together are read together`, async (t) => {
    const { app } = otherApp(t)
    const pieces: Buffer[] = []
    app.addContentTypeParser('text/odd', (_request, payload, done) => {
      payload.on('data', (piece: Buffer) => pieces.push(piece)).on('end', done)
    })
    let release = () => {}
    app.get('/', (_request, reply) => {
      release = () => reply.send('ok')
    })
    app.post('/', async () => 'ok')
    const { client, connection, statuses } = await open(t, app)
    const head = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/odd\r\nTransfer-Encoding: chunked\r\n\r\n'
    const text = `${before}${head}${'1\r\nx\r\n'.repeat(5000)}`
    client.write(text)
    await until('all of it has arrived', () => connection.bytesRead === text.length)
    await nextTurn()
    release()
    client.end('0\r\n\r\n')
    await once(client, 'end')
    t.equal(Buffer.concat(pieces).toString(), 'x'.repeat(5000))
    t.ok(pieces.length < 50, `in ${pieces.length} pieces`)
    t.strictSame(statuses(), Array(before === '' ? 1 : 2).fill(200))
  })

t.test('a body that arrives a byte at a time takes little memory', async (t) => {
  const { app } = otherApp(t)
  const pieces: Buffer[] = []
  app.addContentTypeParser('text/odd', (_request, payload, done) => {
    payload.on('data', (piece: Buffer) => pieces.push(piece)).on('end', done)
  })
  app.post('/', async () => 'ok')
  const { client } = await open(t, app)
  client.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/odd\r\nTransfer-Encoding: chunked\r\n\r\n')
  for (let count = 1; count <= 100; count++) {
    client.write('1\r\nx\r\n')
    await until('it has arrived', () => pieces.length === count)
  }
  const held = [...new Set(pieces.map(({ buffer }) => buffer))]
  const bytes = held.reduce((sum, { byteLength }) => sum + byteLength, 0)
  t.ok(bytes <= 2 * Buffer.poolSize, `${bytes} bytes`)
  client.end('0\r\n\r\n')
  await once(client, 'end')
})

t.test('a body of many chunks waits until it is read', async (t) => {
  const { app } = otherApp(t)
  let body: Readable | undefined
  app.addContentTypeParser('text/odd', (_request, payload, done) => {
    body = payload as Readable
    payload.on('end', done)
  })
  app.post('/', async () => 'ok')
  const { client, connection } = await open(t, app)
  client.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/odd\r\nTransfer-Encoding: chunked\r\n\r\n')
  const size = 16_000_000
  client.write(`${(1000).toString(16)}\r\n${'x'.repeat(1000)}\r\n`.repeat(size / 1000))
  let before = -1
  await until('no more is read', async () => {
    const isDone = body !== undefined && connection.bytesRead === before
    before = connection.bytesRead
    await pause(50)
    return isDone
  })
  t.ok(connection.bytesRead < size / 100, `${connection.bytesRead} bytes`)
  let length = 0
  body!.on('data', (piece: Buffer) => {
    length += piece.length
  })
  client.end('0\r\n\r\n')
  await once(client, 'end')
  t.equal(length, size)
})

t.test('requests that wait on all connections are bounded, but each may have a few', async (t) => {
  const { app } = otherApp(t)
  let answers = hold()
  let running = 0
  app.get('/', async () => {
    running++
    await answers.held
    return 'ok'
  })
  const count = 1800
  /** Opens connections with many requests until one is closed for it, and resolves to the others. */
  async function fill() {
    const before = running
    const deep = []
    do {
      deep.push(await open(t, app))
      deep.at(-1)!.client.write(get.repeat(count))
      await until('its first one runs', () => running === before + deep.length)
      await nextTurn()
    } while (!deep.at(-1)!.connection.destroyed && deep.length < 30)
    t.ok(deep.pop()!.connection.destroyed)
    // 11 have fewer than 20,000 requests, and of each perhaps only a part has been read.
    t.ok(deep.length >= 11, `${deep.length} are open`)
    return deep
  }
  const gone = await fill()
  for (const { client } of gone) client.resetAndDestroy()
  answers.release()
  await until('they are closed', () => gone.every(({ connection }) => connection.closed))
  answers = hold()
  const deep = await fill()
  const few = await open(t, app)
  const before = running
  few.client.write(get.repeat(17))
  await until('its first one runs', () => running > before)
  answers.release()
  const answersOn = async ({ client, statuses }: Awaited<ReturnType<typeof open>>) => {
    client.end()
    await once(client, 'end')
    return statuses().length
  }
  t.strictSame(await Promise.all([...deep, few].map(answersOn)), [...deep.map(() => count), 17])
  const later = await open(t, app)
  later.client.write(get.repeat(count))
  t.equal(await answersOn(later), count, 'there is room again')
})

t.test('a client that goes away while responses wait to be read ends nothing else', async (t) => {
  const { app } = otherApp(t, { http: { ServerResponse: OneWriteResponse } })
  let answered = 0
  app.get('/', (_request, reply) => {
    answered++
    reply.send('x'.repeat(70_000))
  })
  for (let n = 0; n < 10; n++) {
    const { client, connection } = await open(t, app)
    client.pause()
    answered = 0
    client.write(get.repeat(1000))
    await until('no more are read', async () => {
      const before = answered
      await pause(50)
      return answered > 1 && answered === before
    })
    client.resetAndDestroy()
    await until('the connection is closed', () => connection.closed)
  }
  const { client, statuses } = await open(t, app)
  client.end(get)
  await once(client, 'end')
  t.strictSame(statuses(), [200], 'others are answered')
})

t.test('a client that never closes its end does not keep a refused connection open', async (t) => {
  const { app } = otherApp(t)
  const { client, connection } = await open(t, app, { allowHalfOpen: true })
  client.write('nonsense\r\n\r\n')
  await until('the server has closed it', () => connection.closed)
})

t.test('a client that has closed its sending side still gets its answers', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => {
    await nextTurn()
    return 'ok'
  })
  const { client, statuses } = await open(t, app, { allowHalfOpen: true })
  client.end(get + get)
  await once(client, 'end')
  t.strictSame(statuses(), [200, 200])
})

t.test('what follows a malformed request adds nothing to its refusal', async (t) => {
  const { app, reported } = otherApp(t)
  const { held, release } = hold()
  let response: ServerResponse | undefined
  app.get('/', async (_request, reply) => {
    response = reply.raw
    await held
  })
  const { client, connection, statuses } = await open(t, app)
  const listeners: number[] = []
  for (const bytes of [`${get}nonsense\r\n\r\n`, 'more', 'and more']) {
    const wanted = connection.bytesRead + bytes.length
    client.write(bytes)
    await until('the server has read it', () => connection.bytesRead === wanted && response)
    listeners.push(response!.listenerCount('close'))
  }
  t.equal(new Set(listeners).size, 1, `${listeners} listeners`)
  release()
  await once(client, 'close')
  t.strictSame(statuses(), [200, 400])
  t.equal(reported.length, 1)
})

for (const [connections, refused] of [
  [1, [1, 1]],
  [33, [16, 32, 33]],
] as const)
  t.test(`of ${connections} connections whose time is up, 16 are closed in each turn`, async (t) => {
    const { app, reported } = otherApp(t)
    const all: Awaited<ReturnType<typeof open>>[] = []
    for (let i = 0; i < connections; i++) all.push(await open(t, app))
    for (const { client } of all) client.write('GET')
    await until('all have begun', () => all.every(({ connection }) => connection.bytesRead > 0))
    for (const { connection } of all) timeIsUp(app, connection)
    t.equal(reported.length, 0)
    for (const count of refused) {
      await nextTurn()
      t.equal(reported.length, count)
    }
    await Promise.all(all.map(({ client }) => client.closed || once(client, 'close')))
    t.strictSame(new Set(all.flatMap(({ statuses }) => statuses())), new Set([408]))
  })

t.test('a request that is complete just as its time is up is answered, and so are others', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => {
    // Longer than it takes until those whose time is up are closed.
    await nextTurn()
    await nextTurn()
  })
  const { client, connection, statuses } = await open(t, app)
  app.server.prependOnceListener('request', () => timeIsUp(app, connection))
  client.write(get)
  await until('it is answered', () => statuses().length === 1)
  client.write(`${get}nonsense\r\n\r\n`)
  await once(client, 'close')
  t.strictSame(statuses(), [200, 200, 400])
})

t.test('a request whose body stops arriving is 408', async (t) => {
  const { app, reported } = otherApp(t)
  app.post('/', async () => 'never')
  app.addHook('preParsing', async ({ raw }) => {
    setImmediate(timeIsUp, app, raw.socket)
  })
  t.strictSame(
    answersOf(await raw(app, halfBody)).map(({ status }) => status),
    [408],
  )
  t.match(reported, [{ error: { code: 'request_timeout' } }])
})

t.test('a body that can never be complete is answered at once', async (t) => {
  const { app } = otherApp(t)
  app.post('/', async () => 'never')
  const { client, statuses } = await open(t, app)
  const closed = once(client, 'close')
  const startMs = performance.now()
  client.end(halfBody)
  await closed
  t.strictSame(statuses(), [400])
  // Where a rest may come, the answer waits 3 s for it.
  t.ok(performance.now() - startMs < 2000)
})

t.test('a client that resets its connection within a body has sent nothing malformed', async (t) => {
  const { app, reported } = otherApp(t)
  const { onRequest, hasArrived, release } = holdRequest()
  app.post('/', { onRequest }, async () => 'never')
  const { client, connection } = await open(t, app)
  client.write(halfBody)
  await until('its head has arrived', hasArrived)
  client.resetAndDestroy()
  await until('the server has noticed', () => connection.closed)
  release()
  for (let turn = 0; turn < 10; turn++) await nextTurn()
  t.strictSame(reported, [])
})

/** A hook that holds a request once its head has arrived. */
function holdRequest() {
  const { held, release } = hold()
  let arrived = false
  const onRequest = async () => {
    arrived = true
    await held
  }
  return { onRequest, hasArrived: () => arrived, release }
}

/** A POST whose chunks break off before its body is read by this parser of its content type. */
async function breakOff(t: Test, read?: (payload: IncomingMessage, done: () => void) => void) {
  const { app, reported } = otherApp(t)
  const { onRequest, hasArrived, release } = holdRequest()
  if (read) app.addContentTypeParser('text/odd', (_request, payload, done) => read(payload, () => done(null)))
  app.post('/', { onRequest }, async () => 'read')
  const { client, connection, statuses } = await open(t, app)
  const type = read ? 'text/odd' : 'application/json'
  const bytes = `POST / HTTP/1.1\r\nHost: x\r\nContent-Type: ${type}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n`
  client.write(bytes)
  await until('the server has read it', () => hasArrived() && connection.bytesRead === bytes.length)
  release()
  await until('the connection is closed', () => client.closed)
  return { statuses: statuses(), reported: reported.map(({ error }) => error.code) }
}

t.test('a body that breaks off before it is read is a 400 once it is', async (t) => {
  t.strictSame(await breakOff(t), { statuses: [400], reported: ['bad_request'] })
})

t.test('a reader of a broken body gets its error once', async (t) => {
  const errors: Error[] = []
  const outcome = await breakOff(t, (payload, done) => {
    payload.on('end', done)
    setImmediate(() => {
      payload.on('error', (error) => errors.push(error))
      payload.on('error', () => setImmediate(done))
    })
  })
  t.strictSame(outcome, { statuses: [200], reported: [] })
  t.equal(errors.length, 1)
})

t.test('a reader of a broken body that has stopped again gets no error', async (t) => {
  const ignore = () => {}
  const outcome = await breakOff(t, (payload, done) => {
    payload.on('error', ignore)
    payload.off('error', ignore)
    setImmediate(done)
  })
  t.strictSame(outcome, { statuses: [200], reported: [] })
})

// Listeners that are not the TLS server they should be: none gets a credential, and none ends the
// process.
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { until } from '../process/until.ts'
import { makeCertificates, startPrivateRedis } from '../services/index.ts'
import { countAt } from './counters.ts'

const password = 'a-password-that-nobody-may-read'

/** Records what it receives, and answers with `answer`. */
async function listen(t: Test, answer: (socket: Socket) => void) {
  const received: Buffer[] = []
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', (piece) => {
      received.push(piece)
      answer(socket)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, received }
}

const alert = (description: number) => Buffer.from([0x15, 3, 3, 0, 2, 2, description])
const decodeError = 50
const handshakeFailure = 40

const answers: Record<string, (socket: Socket) => void> = {
  'speaks plain Redis': (socket) => socket.write('-ERR unknown command\r\n'),
  'ends the connection': (socket) => socket.end(),
  'resets the connection': (socket) => socket.resetAndDestroy(),
  // The second one arrives after the client has given up because of the first.
  'sends one alert after another': (socket) => {
    socket.write(alert(decodeError))
    socket.write(alert(handshakeFailure))
    setImmediate(() => socket.resetAndDestroy())
  },
}

for (const [what, answer] of Object.entries(answers)) {
  t.test(
    `a server, or each node of a cluster, that ${what} is an outage and learns no password`,
    async (t) => {
      for (const nodes of [1, 2]) {
        const listeners = await Promise.all(Array.from({ length: nodes }, () => listen(t, answer)))
        const urls = listeners.map(({ address }) => `rediss://:${password}@${address}`)
        const { counter, outages, untilDown } = countAt(t, urls.join(), { patience: 1 })
        // An uncaught error would end this test file.
        await until('each listener has received enough', () =>
          listeners.every(({ received }) => received.length > 4),
        )
        await untilDown()
        t.equal(counter.mode(), 'local')
        t.match(counter.outages()[0]!.cause, /^(tls|disconnected|timeout)$/)
        t.notMatch(JSON.stringify(outages), password)
        for (const { received } of listeners) t.notMatch(Buffer.concat(received).toString('latin1'), password)
      }
    },
  )
}

t.test('a TLS connection sends the host name of the server, and never an address', async (t) => {
  for (const [host, isSent] of [
    ['localhost', true],
    ['127.0.0.1', false],
  ] as const) {
    const { address, received } = await listen(t, answers['ends the connection']!)
    countAt(t, `rediss://${address.replace('127.0.0.1', host)}`)
    await until('the handshake has begun', () => received.length > 0)
    t.equal(Buffer.concat(received).includes(host), isSent)
  }
})

// A real one answers a connection that ends within its handshake with an alert: a second error of
// the same socket.
t.test('a Redis whose certificate is not trusted is an outage', async (t) => {
  const tls = await makeCertificates(t, ['DNS:localhost'])
  const redis = tls && (await startPrivateRedis(t, { tls }))
  if (!redis) return
  let refused = 0
  for (let i = 0; i < 20; i++) {
    const client = connectRedis(parseRedisUrl(`rediss://:${password}@localhost:${redis.port}`)!)
    client.on('error', () => refused++)
    client.on('connecting', () => setTimeout(() => client.disconnect(true), i / 5))
    t.teardown(() => client.disconnect())
  }
  const { counter, untilDown } = countAt(t, redis.url)
  await untilDown('certificate')
  await until('many handshakes were refused', () => refused > 200)
  t.equal(counter.mode(), 'local')
})

t.test('a listener that speaks TLS where none was asked for is an outage', async (t) => {
  const { address } = await listen(t, (socket) => socket.write(alert(decodeError)))
  const { counter, untilDown } = countAt(t, `redis://${address}`)
  await untilDown('tls')
  t.equal(counter.mode(), 'local')
})

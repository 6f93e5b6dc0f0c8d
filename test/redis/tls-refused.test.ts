// Listeners that are not the TLS server they should be: none gets a credential, and none ends the process.
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import type { Outage } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { makeCertificates, startPrivateRedis } from '../services/index.ts'

const password = 'a-password-that-nobody-may-read'

/** Keeps all it is sent, and answers by `answer`. */
async function listen(t: Test, answer: (socket: Socket) => void) {
  const heard: Buffer[] = []
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', (piece) => {
      heard.push(piece)
      answer(socket)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as { port: number }
  return { url: `rediss://:${password}@127.0.0.1:${port}`, heard }
}

function countOn(t: Test, url: string) {
  const outages: (Outage | null)[] = []
  const client = connectRedis(parseRedisUrl(url)!)
  const counter = createRedisCounter({ client, onOutage: (outage) => outages.push(outage) })
  t.teardown(() => counter.close())
  return { counter, outages }
}

const alert = (description: number) => Buffer.from([0x15, 3, 3, 0, 2, 2, description])
const decodeError = 50
const handshakeFailure = 40

const answers: Record<string, (socket: Socket) => void> = {
  'speaks plain Redis': (socket) => socket.write('-ERR unknown command\r\n'),
  'ends the connection': (socket) => socket.end(),
  'resets the connection': (socket) => socket.resetAndDestroy(),
  // The second one comes when the client has given up because of the first.
  'sends one alert after another': (socket) => {
    socket.write(alert(decodeError))
    socket.write(alert(handshakeFailure))
    setImmediate(() => socket.resetAndDestroy())
  },
}

for (const [what, answer] of Object.entries(answers)) {
  for (const nodes of [1, 2]) {
    t.test(`${nodes} of which each ${what}`, async (t) => {
      const listeners = await Promise.all(Array.from({ length: nodes }, () => listen(t, answer)))
      const { counter, outages } = countOn(t, listeners.map(({ url }) => url).join(','))
      // An uncaught error would end this test file.
      await until('each listener has heard enough', () => listeners.every(({ heard }) => heard.length > 4))
      await until('the outage is seen', () => counter.outages.length > 0)
      t.equal(counter.mode, 'local')
      t.match(counter.outages[0]!.cause, /^(tls|disconnected|timeout)$/)
      t.notMatch(JSON.stringify(outages), password)
      for (const { heard } of listeners) t.notMatch(Buffer.concat(heard).toString('latin1'), password)
    })
  }
}

// A real one: it answers a connection that ends within its handshake with an alert, which comes as a second error of a socket.
t.test('a Redis whose certificate is not trusted', async (t) => {
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
  const { counter } = countOn(t, redis.url)
  await until('the outage is seen', () => counter.outages[0]?.cause === 'certificate' && refused > 200)
  t.equal(counter.mode, 'local')
})

t.test('a Redis that does no TLS is told as such', async (t) => {
  const redis = await startPrivateRedis(t)
  if (!redis) return
  const { counter } = countOn(t, `rediss://:${password}@127.0.0.1:${redis.port}`)
  await until('the outage is seen', () => counter.outages[0]?.cause === 'tls')
  t.equal(counter.mode, 'local')
})

t.test('and so is one that does TLS where none was asked for', async (t) => {
  const { url } = await listen(t, (socket) => socket.write(alert(decodeError)))
  const { counter } = countOn(t, url.replace('rediss://:', 'redis://').replace(`${password}@`, ''))
  await until('the outage is seen', () => counter.outages[0]?.cause === 'tls')
  t.equal(counter.mode, 'local')
})

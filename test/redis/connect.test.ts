// What a connection to Redis believes, sends and leaves behind. Without a server.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { PeerCertificate } from 'node:tls'
import { Worker } from 'node:worker_threads'
import { Cluster } from 'ioredis'
import t, { type Test } from 'tap'
import { connectRedis, requireRedisDatabase } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { watchTimers } from '../timers.ts'

const nobody = 'redis://127.0.0.1:1,redis://127.0.0.1:2'

/** Listens, and calls `onConnection` for each connection. */
async function listen(t: Test, onConnection: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => {}))
    onConnection(socket)
  }).listen(0, '127.0.0.1')
  t.teardown(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

function connectTo(t: Test, ports: number[]) {
  const client = connectRedis(parseRedisUrl(ports.map((port) => `redis://127.0.0.1:${port}`).join())!)
  client.on('error', () => {})
  t.teardown(() => client.disconnect())
  return client
}

/** A port that takes no connection and refuses none, as that of a host that is gone. */
async function startBlackHole(t: Test): Promise<number> {
  const worker = new Worker(
    `const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
      require('node:worker_threads').parentPort.postMessage(server.address().port)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
    })`,
    { eval: true },
  )
  const [port] = (await once(worker, 'message')) as [number]
  // Those that the kernel takes before anybody accepts them.
  const waiting = Array.from({ length: 4 }, () => connect(port, '127.0.0.1').on('error', () => {}))
  t.teardown(async () => {
    for (const socket of waiting) socket.destroy()
    await worker.terminate()
  })
  await Promise.race(waiting.map((socket) => once(socket, 'connect')))
  return port
}

t.test('a certificate names the host, or a host name in REDIS_URL', async (t) => {
  for (const { urls, host, names, valid } of [
    { urls: 'rediss://one.test', host: 'one.test', names: 'DNS:one.test', valid: true },
    { urls: 'rediss://one.test', host: 'one.test', names: 'DNS:other.test', valid: false },
    { urls: 'rediss://127.0.0.1', host: '127.0.0.1', names: 'IP Address:127.0.0.1', valid: true },
    { urls: 'rediss://one.test', host: '10.0.0.1', names: 'DNS:one.test', valid: true },
    { urls: 'rediss://one.test,rediss://two.test', host: '10.0.0.1', names: 'DNS:two.test', valid: true },
    { urls: 'rediss://one.test', host: '10.0.0.1', names: 'DNS:other.test', valid: false },
    // An address in REDIS_URL may since be that of another server.
    { urls: 'rediss://10.0.0.1', host: '10.0.0.2', names: 'IP Address:10.0.0.1', valid: false },
  ]) {
    const client = connectRedis(parseRedisUrl(urls)!)
    client.on('error', () => {})
    client.disconnect()
    const { tls } = client instanceof Cluster ? client.options.redisOptions! : client.options
    const certificate = { subject: {}, subjectaltname: names } as PeerCertificate
    const fault = tls!.checkServerIdentity!(host, certificate)
    t.equal(fault === undefined, valid, `${names} for ${host} of ${urls}`)
  }
})

t.test('the database of a server that is down or silent is not refused', async (t) => {
  for (const port of [1, await listen(t, () => {})]) {
    const client = connectRedis(parseRedisUrl(`redis://127.0.0.1:${port}/3`)!)
    client.on('error', () => {})
    const written = t.capture(console, 'error')
    await requireRedisDatabase(client)
    t.strictSame(written(), [], 'ioredis writes nothing')
    client.disconnect()
  }
})

t.test('a connection begins without HELLO, which some proxies refuse', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const client = connectRedis(
    parseRedisUrl(`redis://:secret@127.0.0.1:${(server.address() as AddressInfo).port}`)!,
  )
  t.teardown(() => client.disconnect())
  const [socket] = (await accepted) as [Socket]
  t.match(String((await once(socket, 'data'))[0]), /^\*2\r\n\$4\r\nauth\r\n/i)
})

t.test('nothing that is sent to a cluster waits for a connection', async (t) => {
  const client = connectRedis(parseRedisUrl(nobody)!)
  // A time limit of more than a week.
  const counter = createRedisCounter({ client, patience: 1_000_000 })
  t.teardown(() => counter.close())
  t.equal(await counter.raise([{ keyId: newId('apk_'), version: 2 }]), false)
})

t.test('the refresh of the slots keeps no process alive, and ends with the connection', async (t) => {
  const running = watchTimers(t, 'Interval')
  const client = connectRedis(parseRedisUrl(nobody)!)
  client.on('error', () => {})
  t.strictSame(
    [...running.keys()].map((timer) => timer.hasRef()),
    [false],
  )
  await once(client, '+node')
  client.disconnect()
  await once(client, 'end')
  t.equal(running.size, 0)
})

// A cluster asks its nodes for the slots too.
for (const [what, nodes, wanted] of [
  ['a server', 1, 4],
  ['a cluster', 2, 16],
] as const)
  t.test(`${what} that ends every connection is tried again and again, five times a second`, async (t) => {
    const startMs = performance.now()
    const attempts = await new Promise<number>((resolve) => {
      let made = 0
      const ports = Array.from({ length: nodes }, () =>
        listen(t, (socket) => {
          socket.destroy()
          if (++made === wanted) resolve(made)
        }),
      )
      void Promise.all(ports).then((ports) => connectTo(t, ports))
    })
    const tookMs = performance.now() - startMs
    t.ok(tookMs < 8000, `${attempts} attempts in ${tookMs} ms`)
  })

t.test('a connection that nobody takes is given up after a second', async (t) => {
  const port = await startBlackHole(t)
  const startMs = performance.now()
  const client = connectTo(t, [port])
  const error = await new Promise((resolve) => client.once('error', resolve))
  t.match(error, { code: 'ETIMEDOUT' })
  const tookMs = performance.now() - startMs
  t.ok(tookMs < 8000, `${tookMs} ms`)
})

t.test(
  'a connection that is given up is closed soon, also if the server does not close its side',
  async (t) => {
    const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const accepted = once(server, 'connection')
    const client = connectTo(t, [(server.address() as AddressInfo).port])
    const [socket] = (await accepted) as [Socket]
    t.teardown(() => {
      socket.on('error', () => {}).destroy()
      server.close()
    })
    await once(socket, 'data')
    const startMs = performance.now()
    client.disconnect()
    await once(client, 'end')
    const tookMs = performance.now() - startMs
    t.ok(tookMs < 1900, `${tookMs} ms, and not the 2 s of ioredis`)
  },
)

// What a connection to Redis believes, sends and leaves behind. Without a server.
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { PeerCertificate } from 'node:tls'
import { Cluster } from 'ioredis'
import t from 'tap'
import { connectRedis, requireRedisDatabase } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'

const nobody = 'redis://127.0.0.1:1,redis://127.0.0.1:2'

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
  const silent = createServer().listen(0, '127.0.0.1')
  t.teardown(() => silent.close())
  await once(silent, 'listening')
  for (const port of [1, (silent.address() as AddressInfo).port]) {
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
  const running = new Set<NodeJS.Timeout>()
  const { setInterval, clearInterval } = globalThis
  const set = (run: () => void, ms: number) => {
    const timer = setInterval(run, ms)
    running.add(timer)
    return timer
  }
  const clear = (timer: NodeJS.Timeout) => {
    running.delete(timer)
    clearInterval(timer)
  }
  t.intercept(globalThis, 'setInterval', { value: set })
  t.intercept(globalThis, 'clearInterval', { value: clear })
  const client = connectRedis(parseRedisUrl(nobody)!)
  client.on('error', () => {})
  t.strictSame(
    [...running].map((timer) => timer.hasRef()),
    [false],
  )
  await once(client, '+node')
  client.disconnect()
  await once(client, 'end')
  t.equal(running.size, 0)
})

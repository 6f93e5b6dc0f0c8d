// The stream behind the dashboard: real traffic is in it within two seconds, and it ends with the instance.
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import type { Readable } from 'node:stream'
import FakeTimers from '@sinonjs/fake-timers'
import Fastify from 'fastify'
import t from 'tap'
import { eventStream, eventsRoute } from '../../src/ops/events.ts'
import { newId } from '../../src/rules/id.ts'
import { expectError } from '../api/expect-error.ts'
import { makeKey, makeUser, startInstance, startOps } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { until } from '../process/until.ts'
import { startTcpProxy } from '../services/index.ts'
import { ada, startAdmin } from './admin.ts'

const { services, instance, ops } = await startAdmin(t)

/** The newest value of each event. */
// biome-ignore lint/suspicious/noExplicitAny: tests read whatever an event should hold
type Events = Record<string, any>

async function watch(from = ops): Promise<{ events: Events; leave(): void }> {
  const leaving = new AbortController()
  const { body } = await fetch(`${from.url}/admin/events`, {
    headers: { authorization: `Bearer ${ada}` },
    signal: leaving.signal,
  })
  const events: Events = {}
  const read = async () => {
    let text = ''
    for await (const piece of body!.pipeThrough(new TextDecoderStream())) {
      text += piece
      const whole = text.lastIndexOf('\n\n') + 2
      for (const [, name, json] of text.slice(0, whole).matchAll(/^event: (.*)\ndata: (.*)$/gm))
        events[name!] = JSON.parse(json!)
      text = text.slice(whole)
    }
  }
  read().catch(() => {})
  return { events, leave: () => leaving.abort() }
}

t.test('an operator sees who uses how much, who is limited and why callers are refused', async (t) => {
  const user = await makeUser(instance, 'Ada <b>')
  const busy = await makeKey(instance, { userId: user.id, name: 'busy', rateLimitRpm: 4 })
  const { events, leave } = await watch()
  t.teardown(leave)
  const verify = (token: string) => instance.ask('GET', '/v1/verify', { token })
  for (let n = 0; n < 6; n++) await verify(busy.token)
  await verify('sk_1')
  const key = { id: busy.id, name: 'busy', user_id: user.id, user_name: 'Ada <b>', limit: 4 }
  const shown = () => {
    const { counters, last_minute: last } = events
    return [counters, last].flatMap((view) => view?.used ?? []).filter(({ id }) => id === busy.id)
  }
  // A new minute may begin in between.
  const used = () => shown().reduce((sum, { used }) => sum + used, 0)
  await until('all requests are shown', () => used() === 6)
  t.match(shown()[0], key)
  await until('the refusal is shown', () => events.refusals.reasons.wrong_prefix === 1)
  const { id } = instance.service.instance()
  t.match(events.hello, { operator: 'ada', can_log_out: true, instance: id })
  t.match(events.counters, { complete: true, named: true, resets_at: Number })
  t.match(events.servers, { postgres: 'ok' })
  await until('there was traffic', async () => {
    await verify(busy.token)
    return events.traffic?.requests > 0 && events.traffic.p99_ms > 0
  })
})

t.test('without traffic too, it is shown that Postgres is down, and that it is back', async (t) => {
  const network = await startTcpProxy(t, services.databaseUrl)
  const idle = await startOps(t, await startInstance(t, { ...services, databaseUrl: network.url }))
  const { events, leave } = await watch(idle)
  t.teardown(leave)
  await until('all is well', () => events.servers?.postgres === 'ok' && events.instances?.complete)
  network.cut()
  network.refuse()
  await until('Postgres is down', () => events.servers.postgres === 'down')
  await network.heal()
  await until('Postgres is back', () => events.servers.postgres === 'ok')
})

t.test('of the busiest keys ten are shown in each order', async (t) => {
  const user = await makeUser(instance)
  const { id } = await makeKey(instance, { userId: user.id, rateLimitRpm: 2 })
  const redis = services.connectRedis()
  const minute = Math.floor(Date.now() / 60_000)
  for (let n = 0; n < 11; n++) {
    const key = `rl:{${newId('apk_')}}`
    for (const one of [minute, minute + 1]) await redis.set(`${key}:${one}`, 1000 + n)
  }
  for (const one of [minute, minute + 1]) await redis.set(`rl:{${id}}:${one}`, 900)
  const { events, leave } = await watch()
  t.teardown(leave)
  await until('all are read', () => events.counters?.scanned >= 12)
  const { used, share } = events.counters
  t.strictSame([used.length, share.length], [10, 10])
  t.strictSame([used[0].used, share[0].id], [1010, id])
})

t.test('without tokens there is no session that could end', async (t) => {
  const { events, leave } = await watch(await startOps(t, await startInstance(t, services)))
  t.teardown(leave)
  await until('the greeting arrives', () => events.hello)
  t.match(events.hello, { operator: 'local', can_log_out: false })
})

t.test('with 50 viewers connected, the next one gets a 503 with Retry-After', async (t) => {
  const full = await startOps(t, instance)
  const viewers = await Promise.all(Array.from({ length: 50 }, () => watch(full)))
  t.teardown(() => {
    for (const { leave } of viewers) leave()
  })
  const refused = await full.ask('GET', '/admin/events', { token: ada })
  expectError(t, refused, 'service_unavailable')
  t.equal(refused.headers.get('retry-after'), '10')
})

t.test('without a token there is no stream, and a HEAD is none', async (t) => {
  const { status, headers } = await ask(`HEAD ${ops.url}/admin/events`, { token: ada })
  t.strictSame([status, headers.get('allow')], [405, 'GET'])
  expectError(t, await ops.ask('GET', '/admin/events'), 'operator_unauthorized')
})

t.test('a stream ends when the instance begins to drain, which then takes no viewer', async (t) => {
  let state: 'ready' | 'draining' = 'ready'
  const draining = await startOps(t, instance, { state: () => state })
  const ask = () => draining.ask('GET', '/admin/events', { token: ada })
  const whole = ask()
  await draining.ask('GET', '/healthz')
  state = 'draining'
  t.match((await whole).text, /^event: hello\n/)
  const refused = await ask()
  expectError(t, refused, 'service_unavailable')
  t.equal(refused.headers.get('retry-after'), '1', 'which is not the one for too many viewers')
})

t.test('a viewer that does not read is disconnected, and one that has ended gets nothing more', async (t) => {
  const slow = eventStream()
  for (let n = 0; n < 300 && !slow.stream.destroyed; n++) slow.viewer.send('x'.repeat(1024))
  t.ok(slow.stream.destroyed && slow.stream.readableLength < 300_000)
  const ended = eventStream()
  ended.viewer.send('a')
  ended.viewer.end()
  ended.viewer.send('b')
  t.equal(String(await ended.stream.toArray()), 'a')
})

/** A stream of an instance about which nothing is known, so it has no events after the first ones. */
async function quietStream() {
  const down = async () => Promise.reject(new Error('down'))
  const options = {
    service: { stores: { audit: {} }, health: () => ({}), instance: () => ({ id: 'ins_1' }) },
    ...{ board: { read: down }, fleet: { read: down }, isClosing: () => false, hasTokens: true },
  } as never
  const app = Fastify()
  await eventsRoute(app.decorateRequest('operator', 'ada') as never, options)
  return app
}

t.test('a viewer that has left gives up its place without waiting for an event', async (t) => {
  const app = await quietStream()
  Object.assign(app.server, { httpAllowHalfOpen: true })
  t.teardown(() => app.close())
  await app.listen({ host: '127.0.0.1', port: 0 })
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  t.teardown(() => client.destroy())
  let received = ''
  client.on('data', (piece) => {
    received += piece
  })
  client.write('GET /admin/events HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('all is sent that is known', () => received.includes('event: instances'))
  client.end()
  await until('the stream has ended', () => received.endsWith('\r\n0\r\n\r\n'))
})

t.test('a stream ends after 15 minutes, so that a session ended meanwhile sees no more', async (t) => {
  const clock = FakeTimers.install({
    toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'],
    shouldClearNativeTimers: true,
  })
  t.teardown(() => clock.uninstall())
  const app = await quietStream()
  const streams: Readable[] = []
  let sent = ''
  const sockets: Socket[] = []
  app.addHook('onSend', async ({ raw }, _reply, payload) => {
    sockets.push(raw.socket)
    const stream = payload as Readable
    streams.push(stream)
    stream.on('data', (piece) => {
      sent += piece
    })
  })
  const view = async () => {
    const before = streams.length
    app.inject('/admin/events').catch(() => {})
    while (streams.length === before) await new Promise(setImmediate)
    return streams.at(-1)!
  }
  const shown = await view()
  const turns = async () => {
    for (let n = 0; n < 20; n++) await new Promise(setImmediate)
  }
  clock.tick(15 * 60_000 - 1)
  await turns()
  t.equal(shown.readableEnded, false)
  clock.tick(1)
  await turns()
  t.equal(shown.readableEnded, true)
  t.match(sent, /^event: hello\n.*\n\nretry: 3000\n\n/)
  t.match(sent, /\n\nretry: 100\n\n$/, 'and the browser comes back at once')
  shown.destroy()

  const left = await view()
  const timers = clock.countTimers()
  left.destroy()
  await once(left, 'close')
  t.equal(clock.countTimers(), timers - 2, 'a viewer that has left leaves neither its timer nor the reading')
  t.equal(sockets.at(-1)!.listenerCount('end'), 0, 'nor a listener to its connection')
})

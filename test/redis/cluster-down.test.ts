// The counter while no node of a cluster answers, without one. The test sets the clock.
import { install } from '@sinonjs/fake-timers'
import { Cluster } from 'ioredis'
import t, { type Test } from 'tap'
import { createRedisCounter } from '../../src/redis/counter.ts'
import type { Outage } from '../../src/stores.ts'
import { hit } from '../memory/counter-suite.ts'

function open(t: Test) {
  const clock = install({
    toFake: ['setTimeout', 'clearTimeout', 'performance'],
    shouldClearNativeTimers: true,
  })
  t.teardown(() => clock.uninstall())
  const client = new Cluster(['127.0.0.1:1'], { lazyConnect: true })
  const seen = { refreshes: 0, disconnects: 0, otherServers: 0, outages: [] as (Outage | null)[] }
  t.intercept(client, 'refreshSlotsCache', { value: () => seen.refreshes++ })
  t.intercept(client, 'disconnect', { value: () => seen.disconnects++ })
  const counter = createRedisCounter({
    client,
    onOutage: (outage) => seen.outages.push(outage),
    onOtherServer: () => seen.otherServers++,
  })
  /** They share the slots. */
  const give = (masters: string[]) => {
    const slots = Array.from({ length: 16_384 }, (_, slot) => [masters[slot % masters.length]])
    Object.assign(client, { slots })
  }
  return { clock, client, counter, seen, give }
}

const masters = ['127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3']

t.test('the slots are asked for again and again, and no connection is closed', async (t) => {
  const { clock, seen } = open(t)
  await clock.tickAsync(10_000)
  t.match(seen.outages, [{ cause: 'disconnected' }])
  t.ok(seen.refreshes > 10, `${seen.refreshes} times in 10 s`)
  t.equal(seen.disconnects, 0)
})

t.test('each master is reported as down, and no former one', async (t) => {
  const { clock, client, seen, give } = open(t)
  for (const now of [masters, masters.slice(1)]) {
    give(now)
    client.emit('refresh')
  }
  await clock.tickAsync(10_000)
  t.strictSame(
    seen.outages.map((outage) => outage?.reason),
    masters.slice(1).map((node) => `${node}: not connected`),
  )
})

t.test('another master is noticed before its answer is used', async (t) => {
  const { client, counter, seen, give } = open(t)
  give(masters.slice(0, 1))
  client.emit('refresh')
  const before = seen.otherServers
  const seconds = 1_800_000_000
  const answer = Buffer.from(new Float64Array([seconds, 0, 1, 2]).buffer)
  // As the client does when a node redirects it.
  const followed = async () => {
    give(masters.slice(1, 2))
    return answer
  }
  t.intercept(client as unknown as Record<'latchkeyHitBuffer', unknown>, 'latchkeyHitBuffer', {
    value: followed,
  })
  await hit(counter, 'apk_1')
  t.equal(seen.otherServers, before + 1)
})

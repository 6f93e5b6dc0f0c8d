// Counting with a network between this instance and Redis.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { newId } from '../../src/rules/id.ts'
import { type Counted, hit, inOneMinute, numbersOf, upTo } from '../memory/counter-suite.ts'
import { startPrivateRedis } from '../services/index.ts'
import { startTcpProxy } from '../services/tcp-proxy.ts'
import { countAt } from './counters.ts'

const redis = await startPrivateRedis(t)

if (redis)
  t.test('with Redis far away, more than two turns are in flight, and the counts are exact', async (t) => {
    const proxy = await startTcpProxy(t, redis.url)
    const seen = { inFlight: 0, inFlightMax: 0 }
    const { counter, outages, untilShared } = countAt(t, proxy.url, {
      onBatch() {
        seen.inFlight++
        seen.inFlightMax = Math.max(seen.inFlightMax, seen.inFlight)
      },
      onCall: () => seen.inFlight--,
    })
    await untilShared()
    // Far more than a turn takes, even on a slow machine.
    proxy.delay(200)
    const counted = await inOneMinute(async () => {
      const keyId = newId('apk_')
      const first = await hit(counter, keyId)
      const others: Promise<Counted>[] = []
      for (let turn = 0; turn < 40; turn++) {
        others.push(hit(counter, keyId))
        await nextTurn()
      }
      return [first, ...(await Promise.all(others))]
    })
    t.strictSame(numbersOf(counted), upTo(41))
    t.ok(seen.inFlightMax > 2 && seen.inFlightMax <= 24, `${seen.inFlightMax} calls in flight`)
    t.equal(seen.inFlight, 0)
    t.strictSame(outages, [])
  })

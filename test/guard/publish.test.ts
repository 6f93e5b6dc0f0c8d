// A change is in force everywhere before it is answered: at once where Redis confirms it, else when no old copy is trusted.
import t from 'tap'
import { createPublish } from '../../src/guard/publish.ts'
import type { Counter } from '../../src/stores.ts'

const changes = [{ keyId: 'apk_1', version: 2 }]

/** Publishes with a counter that confirms as the test says. */
async function publish(options: {
  confirms: (tryNumber: number) => boolean
  maxStaleMs: number
  mode?: Counter['mode']
}) {
  const { confirms, maxStaleMs, mode = 'shared' } = options
  const tries: unknown[] = []
  const counter: Counter = {
    mode,
    hit: () => true,
    outages: [],
    close: async () => {},
    async raise(versions) {
      tries.push(versions)
      return confirms(tries.length)
    },
  }
  const startMs = performance.now()
  await createPublish({ maxStaleMs, counter })(changes)
  return { tries, tookMs: performance.now() - startMs }
}

/** A test that waited this long would time out. */
const foreverMs = 2 ** 31 - 1000
const maxStaleMs = 300
/** And what a request needs that was counted just before; timers may run a millisecond early. */
const waitMs = maxStaleMs + 250 - 5

t.test('a confirmed change is answered at once', async (t) => {
  const { tries } = await publish({ confirms: () => true, maxStaleMs: foreverMs })
  t.strictSame(tries, [changes])
})

t.test('a confirmation after some tries ends the wait', async (t) => {
  const { tries } = await publish({ confirms: (n) => n === 3, maxStaleMs: foreverMs })
  t.strictSame(tries, [changes, changes, changes])
})

t.test('a change never confirmed is answered when no instance trusts an older copy', async (t) => {
  const { tries, tookMs } = await publish({ confirms: () => false, maxStaleMs })
  t.ok(tookMs >= waitMs, `${tookMs} ms`)
  // Far from the minute after which it stops trying.
  t.ok(tookMs < 30_000, `${tookMs} ms`)
  t.ok(tries.length > 1, 'tries went on meanwhile')
  t.ok(tries.every((versions) => versions === changes))
})

t.test('a counter that can never confirm is asked once, and the answer waits all the same', async (t) => {
  const { tries, tookMs } = await publish({ confirms: () => false, maxStaleMs, mode: 'memory' })
  t.strictSame(tries, [changes])
  t.ok(tookMs >= waitMs, `${tookMs} ms`)
})

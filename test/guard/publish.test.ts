// A change is in force everywhere before it is answered: at once where Redis confirms it, else when
// no old copy is trusted.
import t from 'tap'
import { createPublish } from '../../src/guard/publish.ts'
import type { Counter, Fences } from '../../src/stores.ts'

const changes = [{ keyId: 'apk_1', version: 2 }]

/** Publishes with a counter that confirms as the test says. */
async function publish(options: {
  confirms: (tryNumber: number) => boolean
  maxStaleMs: number
  mode?: Counter['mode']
  fences?: Fences | null
}) {
  const { confirms, maxStaleMs, mode = 'shared', fences = null } = options
  const tries: unknown[] = []
  const counter: Pick<Counter, 'mode' | 'raise'> = {
    mode,
    async raise(versions) {
      tries.push(versions)
      return confirms(tries.length)
    },
  }
  const startMs = performance.now()
  await createPublish({ maxStaleMs, counter, fences, fenceTimeoutMs: 1000 })(changes)
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

t.test(
  'the answer waits until every instance has reported a fence that was raised after the commit',
  async (t) => {
    const calls: (string | number)[] = []
    const fences: Fences = {
      raise: async () => {
        calls.push('raise')
        if (calls.length === 1) throw new Error('Postgres is slow')
        return 3
      },
      passed: async (fence) => calls.push(fence) > 4,
    }
    const { tookMs } = await publish({ confirms: () => false, maxStaleMs: 0, fences })
    t.strictSame(calls, ['raise', 'raise', 3, 3, 3])
    t.ok(tookMs >= 600 - 5, `${tookMs} ms`)
  },
)

t.test('a change that not every instance is known to see is a 503 that says so', async (t) => {
  const fences: Fences = { raise: async () => 3, passed: async () => false }
  const refused = { statusCode: 503, message: /is stored, but not yet confirmed/, suggestion: /^Repeat/ }
  await t.rejects(publish({ confirms: () => false, maxStaleMs, fences }), refused)
  const { tries } = await publish({ confirms: (n) => n === 4, maxStaleMs, fences })
  t.equal(tries.length, 4, 'unless Redis confirms it')
})

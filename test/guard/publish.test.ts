// A change is in force everywhere before it is answered: at once where Redis confirms it, else when
// no old copy is trusted. Times are exact: the test runs the clock.
import { syncBuiltinESMExports } from 'node:module'
import { install } from '@sinonjs/fake-timers'
import t from 'tap'
import type { CountingMode } from '../../schemas/health.ts'
import { createPublish } from '../../src/guard/publish.ts'
import type { Counter, Fences } from '../../src/stores.ts'

const clock = install({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
// `node:timers/promises` too.
syncBuiltinESMExports()
t.teardown(() => {
  clock.uninstall()
  syncBuiltinESMExports()
})

const changes = [{ keyId: 'apk_1', version: 2 }]
const maxStaleMs = 250
/** Longer than anything goes on. */
const endMs = 70_000

/** Publishes with a counter that confirms as the test says. */
async function publish(options: {
  confirms: (tryNumber: number) => boolean
  /** How long the counter takes to say so. */
  raiseMs?: number
  mode?: CountingMode
  fences?: Fences | null
  staleMs?: number
}) {
  const { confirms, raiseMs = 0, mode = 'shared', fences = null, staleMs = maxStaleMs } = options
  const tries: unknown[] = []
  const published: number[] = []
  const slowAtMs: number[] = []
  const counter: Pick<Counter, 'mode' | 'raise'> = {
    mode: () => mode,
    async raise(versions) {
      const isConfirmed = confirms(tries.push(versions))
      if (raiseMs > 0) await new Promise<void>((done) => setTimeout(done, raiseMs))
      return isConfirmed
    },
  }
  const startMs = performance.now()
  let tookMs = NaN
  const onPublished = (seconds: number) => published.push(seconds)
  // A copy has aged after 250 ms, 4 % more for slow clocks, and 250 ms for requests on their way. The
  // wait for the fence ends at the first look after 1.56 s.
  const onSlow = () => slowAtMs.push(performance.now() - startMs)
  const times = { maxStaleMs: staleMs, fenceTimeoutMs: 1050 }
  const publish = createPublish({ ...times, counter, fences, onPublished, onSlow })
  const error = publish(changes).then(
    () => null,
    (error: unknown) => error,
  )
  error.finally(() => {
    tookMs = performance.now() - startMs
  })
  await clock.tickAsync(endMs)
  return { error: await error, tries, tookMs, published, slowAtMs }
}

t.test('a confirmed change is answered at once', async (t) => {
  const { tries, tookMs, published } = await publish({ confirms: () => true, raiseMs: 3 })
  t.strictSame([tries, tookMs, published], [[changes], 3, [0.003]])
})

t.test('a confirmation after some tries ends the wait', async (t) => {
  const { tries, tookMs, published } = await publish({ confirms: (n) => n === 3 })
  t.strictSame([tries, tookMs, published], [[changes, changes, changes], 400, [0.4]])
})

t.test('a change never confirmed is answered when no instance trusts an older copy', async (t) => {
  for (const raiseMs of [0, 100]) {
    const { tookMs, published } = await publish({ confirms: () => false, raiseMs })
    t.strictSame([tookMs, published], [510, [0.51]])
  }
})

t.test('a change that waits for two seconds is reported as slow, once', async (t) => {
  const { tookMs, slowAtMs } = await publish({ confirms: () => false, staleMs: 3000 })
  t.strictSame([tookMs, slowAtMs], [3370, [2000]])
  t.strictSame((await publish({ confirms: (n) => n === 10 })).slowAtMs, [])
  t.strictSame((await publish({ confirms: () => false })).slowAtMs, [])
})

t.test('a change that was answered unconfirmed is tried again for the rest of a minute', async (t) => {
  const { tries } = await publish({ confirms: () => false })
  t.equal(tries.length, 1 + 60_000 / 200)
})

t.test('a counter that can never confirm is asked once, and the answer waits all the same', async (t) => {
  const { tries, tookMs } = await publish({ confirms: () => false, mode: 'memory' })
  t.strictSame([tries, tookMs], [[changes], 510])
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
      async passed(fence) {
        if (calls.push(fence) === 3) throw new Error('Postgres is slow')
        return calls.length > 4
      },
    }
    const { error, tookMs } = await publish({ confirms: () => false, fences })
    t.strictSame(calls, ['raise', 'raise', 3, 3, 3])
    t.strictSame([error, tookMs], [null, 600])
  },
)

t.test(
  'each change waits for a fence of its own, even while that of another one is on its way',
  async (t) => {
    let latest = 0
    const waitedFor: number[] = []
    const fences: Fences = {
      raise: () => new Promise((resolve) => setTimeout(resolve, 100, ++latest)),
      passed: async (fence) => waitedFor.push(fence) > 0,
    }
    const counter: Pick<Counter, 'mode' | 'raise'> = { mode: () => 'memory', raise: async () => false }
    const publish = createPublish({ counter, fences, maxStaleMs, fenceTimeoutMs: 1050 })
    const first = publish(changes)
    await clock.tickAsync(50)
    const second = publish([{ keyId: 'apk_2', version: 2 }])
    await clock.tickAsync(endMs)
    await Promise.all([first, second])
    t.strictSame(waitedFor, [1, 2])
  },
)

t.test('a fence that was reported at once does not shorten the wait', async (t) => {
  const fences: Fences = { raise: async () => 3, passed: async () => true }
  t.equal((await publish({ confirms: () => false, fences })).tookMs, 510)
})

t.test('a change that not every instance is known to see is a 503 that says so', async (t) => {
  let looks = 0
  const fences: Fences = {
    raise: async () => 3,
    async passed() {
      looks++
      return false
    },
  }
  const { error, tookMs, published } = await publish({ confirms: () => false, fences })
  t.match(error, {
    statusCode: 503,
    message: 'The change is stored, but not yet confirmed everywhere.',
    suggestion: /^Repeat it until it no longer fails with this message\./,
    headers: { 'retry-after': '1' },
  })
  t.strictSame([tookMs, published, looks], [1600, [], 8])
  const later = await publish({ confirms: (n) => n === 4, fences })
  t.strictSame([later.error, later.tries.length, later.tookMs], [null, 4, 600], 'unless Redis confirms it')
  t.equal(looks, 8 + 3, 'and then nobody looks any more')
})

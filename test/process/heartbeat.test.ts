// An instance reports itself once a second, one report at a time, and removes itself at the end.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { install } from '@sinonjs/fake-timers'
import t from 'tap'
import { createOldCopies } from '../../src/guard/old-copies.ts'
import { createUnchanged } from '../../src/guard/unchanged.ts'
import { createHeartbeat } from '../../src/process/heartbeat.ts'
import type { KeyChanges } from '../../src/stores.ts'

const clock = install({
  toFake: ['setTimeout', 'clearTimeout', 'performance'],
  shouldClearNativeTimers: true,
})
t.teardown(() => clock.uninstall())

const reply = (fence: number, changes: Partial<KeyChanges> = {}) => ({
  fence,
  changes: { server: '1', known: '', nowS: 0, changed: [], ...changes },
})

async function tick(ms: number) {
  await clock.tickAsync(ms)
  await nextTurn()
}

t.test('one report a second; a slow one delays the next, and a failure is logged once', async (t) => {
  const calls: string[] = []
  const faults: (string | null)[] = []
  let answer = async () => reply(0)
  const heartbeat = createHeartbeat({
    instances: {
      report: ({ id }) => {
        calls.push(id)
        return answer()
      },
      async remove(id) {
        calls.push(`remove ${id}`)
        throw new Error('down')
      },
    },
    oldCopies: { report: async (send) => void (await send(0)), isBehind: () => false },
    unchanged: createUnchanged(),
    report: () => ({ id: 'ins_1' }) as never,
    onFault: (error) => faults.push(error?.message ?? null),
  })
  await heartbeat.start()
  t.equal(calls.length, 1)
  await tick(999)
  t.equal(calls.length, 1)
  await tick(1)
  t.equal(calls.length, 2)

  let fail = (_error: Error) => {}
  answer = () => new Promise((_, reject) => (fail = reject))
  await tick(60_000)
  t.equal(calls.length, 3, 'none pile up behind a slow one')
  answer = () => Promise.reject(new Error('down'))
  fail(new Error('down'))
  await tick(1)
  t.equal(calls.length, 4, 'the next one is late, so it comes at once')
  await tick(2999)
  t.strictSame(faults, ['down'])
  answer = async () => reply(0)
  await tick(1000)
  t.strictSame(faults, ['down', null])

  await heartbeat.close()
  t.equal(calls.at(-1), 'remove ins_1')
  const ended = calls.length
  await tick(5000)
  t.equal(calls.length, ended)
})

for (const earlier of [0, 1])
  t.test(`report ${earlier + 1}, under way at the end, comes before the removal`, async (t) => {
    const calls: string[] = []
    let answer = () => {}
    const heartbeat = createHeartbeat({
      instances: {
        report: () => new Promise((resolve) => (answer = () => resolve(reply(0)))),
        remove: async () => void calls.push('removed'),
      },
      oldCopies: {
        async report(send) {
          await send(0)
          calls.push('reported')
        },
        isBehind: () => false,
      },
      unchanged: createUnchanged(),
      report: () => ({ id: 'ins_1' }) as never,
      onFault() {},
    })
    const started = heartbeat.start()
    for (let n = 0; n < earlier; n++) {
      answer()
      await started
      await tick(1000)
    }
    const closed = heartbeat.close()
    await nextTurn()
    answer()
    await Promise.all([started, closed])
    await tick(5000)
    answer()
    await nextTurn()
    t.strictSame(calls.slice(earlier), ['reported', 'removed'])
  })

t.test('each report asks what has changed since the last reply', async (t) => {
  const asked: (string | null)[] = []
  const learned: number[] = []
  const unchanged = createUnchanged()
  let answer = async () => reply(0, { known: '1 1:2:' })
  const heartbeat = createHeartbeat({
    instances: {
      async report(_, { since }) {
        asked.push(since)
        await new Promise((resolve) => setTimeout(resolve, 1))
        return answer()
      },
      remove: async () => {},
    },
    oldCopies: { report: async (send) => void (await send(0)), isBehind: () => false },
    unchanged: {
      since: unchanged.since,
      learn(changes, askedAtMs) {
        learned.push(performance.now() - askedAtMs)
        unchanged.learn(changes, askedAtMs)
      },
    },
    report: () => ({ id: 'ins_1' }) as never,
    onFault() {},
  })
  const started = heartbeat.start()
  await tick(1)
  await started
  answer = () => Promise.reject(new Error('down'))
  for (let ms = 0; ms < 1500; ms += 10) await tick(10)
  answer = async () => reply(0, { known: '1 1:3:' })
  for (let ms = 0; ms < 2000; ms += 10) await tick(10)
  t.strictSame(asked, [null, '1 1:2:', '1 1:2:', '1 1:3:'])
  t.strictSame(learned, [1, 1, 1], 'what it learns is as of the question')
  const closed = heartbeat.close()
  await tick(1)
  await closed
})

t.test('a fence that somebody waits for is reported at once', async (t) => {
  const fences: number[] = []
  let latest = 0
  const heartbeat = createHeartbeat({
    instances: {
      report: async (_, { fence }) => {
        fences.push(fence)
        return reply(latest)
      },
      remove: async () => {},
    },
    oldCopies: createOldCopies(60_000),
    unchanged: createUnchanged(),
    report: () => ({ id: 'ins_1' }) as never,
    onFault() {},
  })
  await heartbeat.start()
  await tick(10)
  t.strictSame(fences, [0, 0], 'the second one is the first that lets it use old copies')
  latest = 7
  await tick(1000)
  await tick(10)
  t.strictSame(fences, [0, 0, 0, 7])
  await heartbeat.close()
})

t.test('an instance that uses no old copies reports once a second too, with the latest fence', async (t) => {
  const fences: number[] = []
  let latest = 3
  const heartbeat = createHeartbeat({
    instances: {
      // A round trip, so that time passes during a report.
      report: async (_, { fence }) => {
        fences.push(fence)
        await new Promise((resolve) => setTimeout(resolve, 1))
        return reply(latest)
      },
      remove: async () => {},
    },
    oldCopies: createOldCopies(0),
    unchanged: createUnchanged(),
    report: () => ({ id: 'ins_1' }) as never,
    onFault() {},
  })
  const started = heartbeat.start()
  await tick(1)
  await started
  for (let ms = 0; ms < 2900; ms += 10) await tick(10)
  t.strictSame(fences, [0, 3, 3, 3])
  latest = 7
  for (let ms = 0; ms < 1100; ms += 10) await tick(10)
  t.strictSame(fences, [0, 3, 3, 3, 3, 7])
  const closed = heartbeat.close()
  await tick(1)
  await closed
})

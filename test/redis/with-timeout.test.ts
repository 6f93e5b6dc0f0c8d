// How long a reply is waited for, in a process that may be busy. The test sets the clock.
import { install } from '@sinonjs/fake-timers'
import t, { type Test } from 'tap'
import { withTimeout } from '../../src/redis/with-timeout.ts'
import { Unavailable } from '../../src/stores.ts'

/** Waits 100 ms for a reply. Each timer fires as late as `lateMs` says, and the ones after on time. */
function wait(t: Test, lateMs: number[]) {
  const clock = install({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'clearImmediate'] })
  t.teardown(() => clock.uninstall())
  let behindMs = 0
  t.intercept(performance, 'now', { value: () => clock.now + behindMs })
  const { setTimeout } = globalThis
  const late = (run: () => void, ms: number) =>
    setTimeout(() => {
      behindMs += lateMs.shift() ?? 0
      run()
    }, ms)
  t.intercept(globalThis, 'setTimeout', { value: late })
  let reply = (_text: string) => {}
  const sent = new Promise<string>((resolve) => {
    reply = resolve
  })
  let outcome: unknown = 'waiting'
  const settle = (value: unknown) => {
    outcome = value
  }
  withTimeout(sent, 100).then(settle, settle)
  return {
    clock,
    reply,
    /** What has come of it after so many more milliseconds. */
    async after(ms: number) {
      clock.tick(ms)
      // The promises in between settle before the next tick.
      for (let i = 0; i < 5; i++) await null
      return outcome
    },
  }
}

const gaveUp = new Unavailable('no answer in 100 ms')

t.test('a reply in time arrives, and leaves no timer', async (t) => {
  const { clock, reply, after } = wait(t, [])
  t.equal(await after(99), 'waiting')
  reply('reply')
  t.equal(await after(0), 'reply')
  t.equal(clock.countTimers(), 0)
})

for (const lateMs of [0, 20])
  t.test(`a timer that is ${lateMs} ms late is the end`, async (t) => {
    const { after } = wait(t, [lateMs])
    t.equal(await after(99), 'waiting')
    t.equal(await after(1), 'waiting')
    // A turn of the event loop takes a millisecond here.
    t.strictSame(await after(1), gaveUp)
  })

t.test('a reply that lies unread in the socket counts', async (t) => {
  const { clock, reply, after } = wait(t, [])
  clock.tick(99)
  clock.setImmediate(() => reply('reply'))
  t.equal(await after(1), 'reply')
})

for (const [lateMs, untilMs] of [
  [[20.5], 150],
  [[30, 30, 30], 200],
] as const)
  t.test(`after ${lateMs.length} pauses it waits until ${untilMs} ms`, async (t) => {
    const { after } = wait(t, [...lateMs])
    t.equal(await after(untilMs), 'waiting')
    t.strictSame(await after(1), gaveUp)
  })

// What the dashboard's viewers get: one reading for all of them, and none while nobody looks.
import FakeTimers from '@sinonjs/fake-timers'
import t, { type Test } from 'tap'
import { createLive, type LiveOptions, type Viewer } from '../../src/ops/live.ts'

const clock = FakeTimers.install({ toFake: ['setInterval', 'clearInterval', 'performance'] })
t.teardown(() => clock.uninstall())

const everyMs = 1000
/** Lets a second pass, and what it began. */
const second = async () => {
  await new Promise(setImmediate)
  clock.tick(everyMs)
  await new Promise(setImmediate)
}

function viewer(): Viewer & { seen: Record<string, unknown[]>; ended: boolean } {
  const seen: Record<string, unknown[]> = {}
  return {
    seen,
    ended: false,
    send(events) {
      for (const [, name, json] of events.matchAll(/^event: (.*)\ndata: (.*)\n\n/gm))
        seen[name!] = [...(seen[name!] ?? []), JSON.parse(json!)]
    },
    end() {
      this.ended = true
    },
  }
}

function live(t: Test, options: Partial<LiveOptions<string>> = {}) {
  const made = createLive({ sources: {}, history: 'n', isClosing: () => false, ...options })
  const watch = (who: Viewer) => {
    const leave = made.watch(who)
    if (leave) t.teardown(leave)
    return leave
  }
  return { watch }
}

t.test('all viewers share one reading a second, and nothing is read while nobody looks', async (t) => {
  let n = 0
  const { watch } = live(t, { sources: { n: () => ++n, same: () => ({ a: 1 }) } })
  await second()
  t.equal(n, 0)
  const [early, late] = [viewer(), viewer()]
  const leaveEarly = watch(early)!
  await second()
  const leaveLate = watch(late)!
  await second()
  t.strictSame(
    early.seen,
    { history: [[]], n: [1, 2, 3], same: [{ a: 1 }] },
    'what has not changed is not sent',
  )
  t.strictSame(late.seen, { history: [[1, 2]], n: [2, 3], same: [{ a: 1 }] }, 'who comes later knows as much')
  leaveEarly()
  await second()
  t.strictSame([early.seen.n?.at(-1), late.seen.n?.at(-1)], [3, 4])
  leaveLate()
  await second()
  t.equal(n, 4)
  const again = viewer()
  watch(again)
  await second()
  t.match(again.seen, { history: [[1, 2, 3, 4]], n: [5, 6] }, 'nothing old is shown as new')
})

t.test('a new viewer gets everything at once; then the sources take turns within the second', async (t) => {
  const asked: string[] = []
  const sources = Object.fromEntries(['a', 'b', 'c', 'd'].map((name) => [name, () => asked.push(name)]))
  const { watch } = live(t, { sources })
  watch(viewer())
  await new Promise(setImmediate)
  t.equal(asked.splice(0).join(''), 'abcd')
  for (const name of ['a', 'b', 'c', 'd', 'a']) {
    clock.tick(everyMs / 4)
    await new Promise(setImmediate)
    t.equal(asked.splice(0).join(''), name)
  }
})

t.test('a source that is stuck is not asked again, and holds up no other', async (t) => {
  let asked = 0
  let answer = (_value: string) => {}
  const stuck = () => {
    asked++
    return new Promise<string>((resolve) => {
      answer = resolve
    })
  }
  let n = 0
  const failing = () => {
    throw new Error('down')
  }
  const { watch } = live(t, { sources: { stuck, n: () => ++n, failing } })
  const one = viewer()
  watch(one)
  await second()
  await second()
  t.strictSame([asked, one.seen.n, one.seen.failing], [1, [1, 2, 3], [null]])
  answer('at last')
  await second()
  t.strictSame([one.seen.stuck, asked], [['at last'], 2])
})

t.test('what is read while the last viewer leaves is not new to the next one', async (t) => {
  let answer = (_value: string) => {}
  const slow = () =>
    new Promise<string>((resolve) => {
      answer = resolve
    })
  const { watch } = live(t, { sources: { slow } })
  const leave = watch(viewer())!
  await new Promise(setImmediate)
  leave()
  answer('old')
  await new Promise(setImmediate)
  const next = viewer()
  watch(next)
  t.strictSame(next.seen.slow, undefined)
})

t.test('a viewer that reconnects at once adds nothing to the history', async (t) => {
  let n = 0
  const { watch } = live(t, { sources: { n: () => ++n } })
  for (let i = 0; i < 5; i++) {
    const leave = watch(viewer())!
    await new Promise(setImmediate)
    leave()
  }
  const [next, later] = [viewer(), viewer()]
  watch(next)
  await second()
  watch(later)
  t.strictSame([next.seen.history, later.seen.history], [[[1]], [[1, 7]]])
})

t.test('the history has every second, also one that is read soon after one that took long', async (t) => {
  let answer = (_value: number) => {}
  const slow = () =>
    new Promise<number>((resolve) => {
      answer = resolve
    })
  const { watch } = live(t, { sources: { n: slow } })
  watch(viewer())
  for (const [ms, value] of [
    [0, 1],
    [300, 2],
    [0, 3],
  ] as const) {
    clock.tick(ms)
    await new Promise(setImmediate)
    answer(value)
    await new Promise(setImmediate)
    clock.tick(everyMs - ms)
    await new Promise(setImmediate)
  }
  const late = viewer()
  watch(late)
  t.strictSame(late.seen.history, [[1, 2, 3]])
})

t.test('all viewers end when this instance does', async (t) => {
  let closing = false
  const { watch } = live(t, { sources: { n: () => 1 }, isClosing: () => closing })
  const [first, other, gone] = [viewer(), viewer(), viewer()]
  watch(first)
  watch(other)
  watch(gone)!()
  closing = true
  await second()
  t.strictSame([first.ended, other.ended, gone.ended], [true, true, false])
  t.equal(watch(viewer()), null)
})

t.test('at most 50 viewers get the last five minutes, without seconds of nothing', async (t) => {
  let n = 0
  const { watch } = live(t, { sources: { n: () => (++n % 2 === 0 ? null : n) } })
  const leave = watch(viewer())!
  for (let i = 0; i < 700; i++) await second()
  const others = Array.from({ length: 49 }, viewer)
  for (const other of others) t.ok(watch(other))
  const [past] = others[0]!.seen.history as number[][]
  t.strictSame([past!.length, past!.at(-1)], [300, n])
  t.ok(past!.every((one, i) => one === past![0]! + 2 * i))
  t.equal(watch(viewer()), null)
  leave()
  t.ok(watch(viewer()), 'who leaves makes room')
})

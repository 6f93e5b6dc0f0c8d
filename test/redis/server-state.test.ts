// When a server is probed, counts as down, and gets a new connection. The test is the server, and
// sets the clock.
import { install } from '@sinonjs/fake-timers'
import t, { type Test } from 'tap'
import { createServerState } from '../../src/redis/server-state.ts'

const clock = install({
  toFake: ['setTimeout', 'clearTimeout', 'performance'],
  shouldClearNativeTimers: true,
})
t.teardown(() => clock.uninstall())

const refused = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
const replyError = (message: string) => Object.assign(new Error(message), { name: 'ReplyError' })
const gone = new Error('gone')

function open(t: Test) {
  const startMs = clock.now
  const seen = {
    fault: null as Error | null,
    probe: (): Promise<number[]> => Promise.reject(gone),
    probesMs: [] as number[],
    clocks: [] as number[][],
    outages: [] as (string | null)[],
    reconnectsMs: [] as number[],
    located: 0,
    local: 0,
  }
  const passedMs = () => clock.now - startMs
  const state = createServerState({
    fault: () => seen.fault,
    probe() {
      seen.probesMs.push(passedMs())
      return seen.probe()
    },
    locate: () => seen.located++,
    reconnect: () => seen.reconnectsMs.push(passedMs()),
    onOutage: (outage) => seen.outages.push(outage === null ? null : outage.reason),
    onClock: (answer) => seen.clocks.push(answer),
    onLocal: () => seen.local++,
    answerTimeoutMs: 100,
  })
  t.teardown(() => state.close())
  return { state, seen, until: (ms: number) => clock.tickAsync(ms - passedMs()) }
}

t.test('a new server is probed after 20 ms, and counts when it answers', async (t) => {
  const { state, seen, until } = open(t)
  seen.probe = async () => [5, 6]
  await until(19)
  t.match(state, { mode: 'new', outage: null })
  await until(20)
  t.equal(state.mode, 'shared')
  t.strictSame([seen.clocks, seen.outages], [[[5, 6]], []])
})

t.test('a new server has a second to connect', async (t) => {
  const { state, seen, until } = open(t)
  seen.fault = refused
  await until(999)
  t.equal(state.mode, 'new')
  await until(1000)
  t.match(state, { mode: 'local', outage: { cause: 'refused' } })
  t.strictSame([seen.probesMs, seen.outages, seen.local], [[], ['refused'], 1])
})

t.test('a new server that answers with an error is down at once', async (t) => {
  const { state, until } = open(t)
  await until(20)
  t.match(state, { mode: 'local', outage: { reason: 'gone' } })
})

t.test('after a failed call it is probed every 200 ms, however many calls fail', async (t) => {
  const { state, seen, until } = open(t)
  state.failed(gone)
  await until(100)
  state.failed(gone)
  await until(399)
  t.strictSame(seen.probesMs, [200])
  await until(400)
  t.strictSame(seen.probesMs, [200, 400])
  t.strictSame([seen.outages, seen.local, seen.located], [['gone'], 1, 2])
  seen.probe = async () => [5, 6]
  await until(5000)
  t.strictSame(seen.probesMs, [200, 400, 600])
  t.match(state, { mode: 'shared', outage: null })
  t.strictSame([seen.outages, seen.reconnectsMs], [['gone', null], []])
  seen.fault = refused
  state.failed(gone)
  t.strictSame(seen.outages, ['gone', null, 'refused'], 'the next outage is one of its own')
})

t.test('a server in doubt is probed once, and is down only if it refuses that', async (t) => {
  const { state, seen, until } = open(t)
  seen.probe = async () => [5, 6]
  await until(20)
  state.doubt()
  await until(100)
  state.doubt()
  await until(1000)
  t.strictSame([seen.probesMs, seen.outages], [[20, 220], []])
  t.match(state, { mode: 'shared', outage: null })
  seen.probe = () => Promise.reject(replyError('NOPERM'))
  state.doubt()
  await until(1200)
  t.match(state, { mode: 'local', outage: { cause: 'no_permission' } })
  t.strictSame([seen.outages, seen.local], [['NOPERM'], 1])
})

for (const [silence, error] of [
  ['no answer', gone],
  ['a replica that does not count', replyError("READONLY You can't write against a read only replica.")],
  ['a master without its replicas', replyError('NOREPLICAS Not enough good replicas to write.')],
] as const)
  t.test(`after more than a second with ${silence}, the connection is replaced`, async (t) => {
    const { state, seen, until } = open(t)
    state.failed(gone)
    seen.probe = () => Promise.reject(error)
    await until(2399)
    t.strictSame(seen.reconnectsMs, [1200])
    await until(2400)
    t.strictSame(seen.reconnectsMs, [1200, 2400])
  })

t.test('a cause that lasts is reported once, and stays while the connection is replaced', async (t) => {
  const { state, seen, until } = open(t)
  state.failed(refused)
  const readOnly = "READONLY You can't write against a read only replica."
  seen.probe = () => Promise.reject(replyError(readOnly))
  await until(200)
  t.match(state.outage, { cause: 'read_only' })
  seen.fault = new Error('not connected')
  await until(400)
  t.match(state.outage, { cause: 'read_only' })
  t.strictSame(seen.outages, ['refused', readOnly])
  seen.fault = refused
  await until(600)
  t.match(state.outage, { cause: 'refused' })
})

t.test('a second counts from the last answer', async (t) => {
  const { state, seen, until } = open(t)
  state.failed(gone)
  seen.probe = () => Promise.reject(replyError('LOADING Redis is loading the dataset in memory'))
  await until(4000)
  t.strictSame(seen.reconnectsMs, [])
  seen.probe = () => Promise.reject(gone)
  await until(5300)
  t.strictSame(seen.reconnectsMs, [5200])
})

t.test('once closed, nothing changes any more', async (t) => {
  const others = clock.countTimers()
  const { state, seen, until } = open(t)
  let answer = (_time: number[]) => {}
  seen.probe = () =>
    new Promise((resolve) => {
      answer = resolve
    })
  await until(20)
  state.close()
  answer([5, 6])
  await until(21)
  t.equal(state.mode, 'new')
  state.failed(gone)
  state.doubt()
  t.strictSame([state.mode, seen.local, clock.countTimers() - others], ['new', 0, 0])
  const { state: waiting } = open(t)
  waiting.close()
  t.equal(clock.countTimers() - others, 0)
})

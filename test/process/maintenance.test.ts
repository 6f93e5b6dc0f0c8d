// Partitions are maintained at the start and every hour after it, whatever became of the round before.
import FakeTimers from '@sinonjs/fake-timers'
import t from 'tap'
import { startMaintenance } from '../../src/process/maintenance.ts'
import type { OnDropped } from '../../src/wiring/stores.ts'

t.test('a round at the start and one each hour, until it is stopped', async (t) => {
  const clock = FakeTimers.install({ toFake: ['setInterval', 'clearInterval'] })
  t.teardown(() => clock.uninstall())
  const lines: string[] = []
  const faults: object[] = []
  const log = {
    info: (_: object, line: string) => lines.push(line),
    error: (fault: object, line: string) => {
      faults.push(fault)
      lines.push(line)
    },
  }
  let rounds = 0
  let fail = (_: Error) => {}
  const maintain = async (onDropped: OnDropped) => {
    if (++rounds === 2) onDropped(['audit_refusals_20261001'])
    if (rounds < 4) throw new Error('Postgres is down')
    await new Promise((_resolve, reject) => {
      fail = reject
    })
  }
  let created = 0
  const createPartitions = async () => {
    created++
    throw new Error('Postgres is down')
  }
  const { stop } = await startMaintenance({ maintain, createPartitions }, log as never)
  t.strictSame([created, rounds], [1, 1])
  for (const expected of [2, 3, 4]) {
    await clock.tickAsync(3_600_000)
    t.equal(rounds, expected)
  }
  const failed = /maintenance failed/
  t.match(lines, [failed, failed, /dropped/, failed, failed])
  t.equal(lines.length, 5)
  t.strictSame(faults, new Array(4).fill({ reason: 'Postgres is down' }), 'as in the other lines of the log')
  stop()
  fail(new Error('Postgres is down'))
  await clock.tickAsync(7_200_000)
  t.strictSame([rounds, lines.length], [4, 5], 'it has stopped, and so has the pool of the last round')
})

t.test('a start does not wait until old days are dropped', async (t) => {
  const stores = { maintain: () => new Promise<void>(() => {}), createPartitions: async () => {} }
  const maintenance = await startMaintenance(stores, {} as never)
  maintenance.stop()
  t.pass('it has started')
})

t.test('a start waits until the coming days have their partitions', async (t) => {
  let create = () => {}
  const createPartitions = () =>
    new Promise<void>((resolve) => {
      create = resolve
    })
  let isStarted = false
  const starting = startMaintenance({ maintain: async () => {}, createPartitions }, {} as never)
  void starting.then(() => {
    isStarted = true
  })
  await new Promise(setImmediate)
  t.equal(isStarted, false)
  create()
  const maintenance = await starting
  maintenance.stop()
})

t.test('rows without a partition have it created at once, every 10 s at most', async (t) => {
  const clock = FakeTimers.install({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  t.teardown(() => clock.uninstall())
  const lines: string[] = []
  const log = {
    warn: (line: string) => lines.push(line),
    error: (_: object, line: string) => lines.push(line),
  }
  let created = 0
  const stores = {
    maintain: async () => {},
    async createPartitions() {
      if (++created === 2) throw new Error('Postgres is down')
    },
  }
  const { createPartitions, stop } = await startMaintenance(stores, log as never)
  t.teardown(stop)
  for (const [afterMs, expected] of [
    [0, 2],
    [9_999, 2],
    [1, 3],
    [1, 3],
  ] as const) {
    await clock.tickAsync(afterMs)
    createPartitions()
    createPartitions()
    t.equal(created, expected)
  }
  t.match(lines, [/maintenance failed/, /created/])
})

// Partitions are maintained at the start and every hour after it, whatever became of the round before.
import FakeTimers from '@sinonjs/fake-timers'
import t from 'tap'
import { startMaintenance } from '../../src/process/maintenance.ts'

t.test('a round at the start and one each hour, until it is stopped', async (t) => {
  const clock = FakeTimers.install({ toFake: ['setInterval', 'clearInterval'] })
  t.teardown(() => clock.uninstall())
  const lines: string[] = []
  const log = {
    info: (_: object, line: string) => lines.push(line),
    error: (_: object, line: string) => lines.push(line),
  }
  let rounds = 0
  const maintain = async () => {
    if (++rounds === 2) throw new Error('Postgres is down')
    return rounds === 3 ? ['audit_refusals_20261001'] : []
  }
  const { stop } = await startMaintenance({ maintain, createPartitions: async () => {} }, log as never)
  t.strictSame([rounds, lines], [1, []])
  for (const expected of [2, 3, 4]) {
    await clock.tickAsync(3_600_000)
    t.equal(rounds, expected)
  }
  t.match(lines, [/maintenance failed/, /dropped/])
  stop()
  await clock.tickAsync(7_200_000)
  t.equal(rounds, 4)
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
    maintain: async () => [],
    async createPartitions() {
      if (++created === 1) throw new Error('Postgres is down')
    },
  }
  const { createPartitions, stop } = await startMaintenance(stores, log as never)
  t.teardown(stop)
  for (const [afterMs, expected] of [
    [0, 1],
    [9_999, 1],
    [1, 2],
    [1, 2],
  ] as const) {
    await clock.tickAsync(afterMs)
    createPartitions()
    createPartitions()
    t.equal(created, expected)
  }
  t.match(lines, [/maintenance failed/, /created/])
})

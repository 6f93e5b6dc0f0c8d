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
  const stop = await startMaintenance({ maintain }, log as never)
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

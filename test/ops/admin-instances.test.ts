// Every instance as operators see it, by any of them.
import t from 'tap'
import { version } from '../../src/version.ts'
import { nowS } from '../api/values.ts'
import { until } from '../process/until.ts'
import { startAdmin } from './admin.ts'

const { instance, sql, admin, startOther } = await startAdmin(t)

interface Listed {
  id: string
  alive: boolean
  seen_at: number
  silent_s: number
}
const listed = async (): Promise<Listed[]> => (await admin('GET', 'instances')).body.instances

t.test('an instance is there while it runs, and its report is never old', async (t) => {
  const other = await startOther()
  const { body } = await admin('GET', 'instances')
  t.strictSame(
    body.instances.map(({ id }: Listed) => id),
    [instance.service.instance().id, other.service.instance().id].sort(),
  )
  t.match(body, { complete: true })
  t.match(body.instances[0], { version, alive: true, redis: 'shared', postgres: 'ok' })
  t.ok(Math.abs(body.instances[0].seen_at - nowS()) < 60)
  t.ok(instance.service.instance().uptimeS < process.uptime(), 'in seconds')
  await until(
    'it has reported itself again',
    async () => (await listed())[0]!.seen_at > body.instances[0].seen_at,
  )
  await other.close()
  t.equal((await listed()).length, 1)
})

t.test('a killed instance is shown as not alive, for an hour', async (t) => {
  const dead = (id: string, ago: string) => sql`
    insert into instances (id, version, started_at, seen_at, counting, postgres, traffic, fence)
    select ${id}, version, started_at, now() - ${ago}::text::interval, counting, postgres, traffic, fence from instances limit 1`
  await dead('ins_killed', '59 minutes')
  await dead('ins_forgotten', '61 minutes')
  await instance.service.stores.maintain(() => {})
  t.strictSame(
    (await listed())
      .map(({ id, alive, silent_s }) => [id === 'ins_killed', alive, Math.floor(silent_s / 60)])
      .sort(),
    [
      [false, true, 0],
      [true, false, 59],
    ],
  )
})

t.test('a report has what the instance has answered', async (t) => {
  await instance.ask('GET', '/v1/verify')
  const report = await until('the report has the refusal', async () => {
    const [row] = await sql`select traffic from instances where id = ${instance.service.instance().id}`
    return row!.traffic.refused > 0 && row!.traffic
  })
  t.match(report, { refused: 1, rateLimited: 0, answers: [0, 0, 0, 0, 1, 0] })
  t.equal(
    report.latencies.reduce((sum: number, count: number) => sum + count),
    1,
  )
})

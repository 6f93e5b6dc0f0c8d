// Whom a change that Redis does not confirm must wait for, as far as Postgres knows.
import t from 'tap'
import { createInstanceStore, dropSilentInstances } from '../../src/postgres/instances.ts'
import { createPool } from '../../src/postgres/pool.ts'
import { openStores } from './open-stores.ts'

const { sql, url } = await openStores(t)
const pool = createPool({ url, purpose: 'test', max: 1, timeoutMs: 30_000 })
t.teardown(() => pool.close())
const { fences, report, list, remove } = createInstanceStore(
  { instances: pool, management: pool },
  { outageTtlMs: 60_000 },
)
const instance = { id: 'ins_1', version: '1', uptimeS: 1, counting: 'shared', postgres: 'ok', traffic: {} }
const reported = async (fence: number) => (await report(instance as never, { fence, since: null })).fence

t.test('before the first change, the fence is one that no change waits for', async (t) => {
  t.equal(await reported(0), 0)
  t.ok((await fences.raise()) > 0)
})

t.test('a fence is passed once every instance has reported it, or has stopped', async (t) => {
  const fence = await fences.raise()
  t.equal(await reported(fence - 1), fence, 'a report learns the latest')
  t.equal(await fences.passed(fence), false)
  await reported(fence)
  t.equal(await fences.passed(fence), true)
  const next = await fences.raise()
  t.ok(next > fence)
  t.equal(await fences.passed(next), false)
  await remove('ins_1')
  t.equal(await fences.passed(next), true)
})

t.test('a silent instance is waited for until it can use no old copy, by any clock', async (t) => {
  const fence = await fences.raise()
  await reported(fence - 1)
  const silentFor = async (seconds: number) => {
    await sql`update instances set seen_at = clock_timestamp() - make_interval(secs => ${seconds})`
    return fences.passed(fence)
  }
  t.equal(await silentFor(63), false)
  t.equal(await silentFor(63.4), true)
})

t.test('the list has what each instance reported last, and when it started', async (t) => {
  const started = { ...instance, id: 'ins_2', uptimeS: 3600, traffic: { refused: 1 } }
  const later = { ...started, uptimeS: 3601, counting: 'local', postgres: 'down', traffic: { refused: 2 } }
  for (const one of [started, later]) await report(one as never, { fence: 0, since: null })
  const [found] = (await list()).filter(({ id }) => id === 'ins_2')
  const { startedAt, seenAt, silentS, ...rest } = found!
  const { uptimeS: _, ...reported } = later
  t.strictSame(rest, reported)
  t.ok(Math.abs(seenAt - startedAt - 3600) < 60)
  t.ok(silentS >= 0 && silentS < 60)
})

t.test('an instance whose last report seems to lie ahead is silent for 0 s', async (t) => {
  await report({ ...instance, id: 'ins_ahead' } as never, { fence: 0, since: null })
  await sql`update instances set seen_at = clock_timestamp() + interval '1 hour' where id = 'ins_ahead'`
  t.match(
    (await list()).find(({ id }) => id === 'ins_ahead'),
    { silentS: 0 },
  )
  await remove('ins_ahead')
})

t.test('an instance is forgotten an hour after its last report', async (t) => {
  for (const [id, minutes] of [
    ['ins_59', 59],
    ['ins_61', 61],
  ] as const) {
    await report({ ...instance, id } as never, { fence: 0, since: null })
    await sql`update instances set seen_at = now() - make_interval(mins => ${minutes}) where id = ${id}`
  }
  await pool.run(dropSilentInstances)
  const ids = (await list()).map(({ id }) => id)
  t.strictSame([ids.includes('ins_59'), ids.includes('ins_61')], [true, false])
})

t.test('a thousand dead instances do not crowd a live one out of the list', async (t) => {
  await sql`
    insert into instances (id, version, started_at, seen_at, counting, postgres, traffic, fence)
    select 'ins_dead' || n, version, now() - interval '2 hours', now() - interval '30 minutes', counting, postgres,
      traffic, fence
    from instances, generate_series(1, 1000) n where id = 'ins_2'`
  const listed = await list()
  t.equal(listed.length, 1000)
  t.strictSame(
    listed.slice(-2).map(({ id }) => id),
    ['ins_2', 'ins_1'],
    'in the order of their starts',
  )
})

// AUDIT_RETENTION_DAYS and USAGE_RETENTION_DAYS as an operator sees them: a start drops older refusals
// and usage, whole days at a time, and says so.
import t from 'tap'
import { readConfig } from '../../src/config.ts'
import { openStores } from '../../src/wiring/stores.ts'
import { type Instance, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { externalEnv } from './latchkey.ts'
import { until } from './until.ts'

t.test(
  'a start drops the days past their retention with their entries, keeps the others, and says so',
  async (t) => {
    const services = await useServices(t)
    const first = await startInstance(t, services)
    const refused = (await first.ask('GET', '/v1/verify')).headers.get('x-request-id')!
    const sql = openDatabase(t, services.databaseUrl)

    /** A partition as the service made it this many days ago, with one entry. Returns its name. */
    async function dayAgo(days: number): Promise<string> {
      const [day] = await sql`
        select 'audit_refusals_' || to_char(d, 'YYYYMMDD') as name, d::text as "from", (d + 1)::text as "to"
        from (select (now() at time zone 'UTC')::date - ${days}::int as d) as day`
      const { name, from, to } = day!
      await sql.unsafe(`create table ${name} partition of audit_refusals
        for values from ('${from} 00:00:00+00') to ('${to} 00:00:00+00')`)
      await sql`insert into audit_log (id, request_id, event, reason, occurred_at)
        values (${`aud_${days}`}, ${`req_${days}`}, 'auth.refused', 'revoked', ${`${from} 12:00:00+00`}::timestamptz)`
      return name
    }
    const [old400, old92, old6, young] = [
      await dayAgo(400),
      await dayAgo(92),
      await dayAgo(6),
      await dayAgo(2),
    ]
    const [usage] = await sql`
      select create_day_partitions('key_usage', day, day), 'key_usage_' || to_char(day, 'YYYYMMDD') as name
      from (select (now() at time zone 'UTC')::date - 6 as day) as day`
    await sql`insert into audit_log (id, request_id, event, key_id, occurred_at)
      values ('aud_change', 'req_change', 'key.revoked', 'apk_1', now() - interval '400 days')`
    const there = async () => {
      const rows = await sql`select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'audit_refusals'::regclass`
      return rows.map(({ relname }) => relname)
    }
    const found = ({ service }: typeof first) =>
      Promise.all(
        ['req_400', 'req_92', 'req_6', 'req_2', refused, 'req_change'].map(
          async (id) => (await service.stores.audit.find(id)).length,
        ),
      )

    t.strictSame(await found(first), [1, 1, 1, 1, 1, 1])

    const usual = await startInstance(t, services)
    t.strictSame(await dropped(usual, 2), [old400, old92])
    t.strictSame(await found(usual), [0, 0, 1, 1, 1, 1], 'without it 90 days are kept, and every change')

    const limited = await startInstance(t, services, { AUDIT_RETENTION_DAYS: '4' })
    t.strictSame(await dropped(limited, 1), [old6], 'usage has a retention of its own')
    t.strictSame(await found(limited), [0, 0, 0, 1, 1, 1], 'the older refusals are gone, the change is not')
    const kept = await there()
    t.notOk([old400, old92, old6].some((name) => kept.includes(name)))
    t.ok(kept.includes(young))
    t.equal((await limited.ask('GET', '/v1/verify')).status, 401, 'refusals are recorded as before')

    const forgetful = await startInstance(t, services, { USAGE_RETENTION_DAYS: '4' })
    t.strictSame(await dropped(forgetful, 1), [usage!.name])
  },
)

/** The names that an instance says it has dropped, once there are so many. */
async function dropped({ log }: Pick<Instance, 'log'>, count: number): Promise<string[]> {
  const names = () =>
    log.flatMap(({ msg, partitions }) =>
      msg === 'partitions past their retention dropped' ? (partitions as string[]) : [],
    )
  await until('they are dropped', () => names().length >= count)
  return names()
}

t.test('a start with a much shorter retention drops all the days past it at once', async (t) => {
  const services = await useServices(t)
  await startInstance(t, services)
  const sql = openDatabase(t, services.databaseUrl)
  await sql`
    select create_day_partitions(parent, today - 60, today - 2)
    from unnest(array['audit_refusals', 'key_usage']) as parent,
      (select (now() at time zone 'UTC')::date as today) as day`
  const env = { AUDIT_RETENTION_DAYS: '1', USAGE_RETENTION_DAYS: '1' }
  t.equal((await dropped(await startInstance(t, services, env), 2 * 59)).length, 2 * 59)
})

t.test(
  'what cannot be dropped is reported, after the coming days are there and others dropped',
  async (t) => {
    const services = await useServices(t)
    // Not those of an instance, whose own round may drop them first.
    const stores = await openStores(readConfig(externalEnv(services)), { role: 'serve' })
    t.teardown(() => stores.close())
    const sql = openDatabase(t, services.databaseUrl)
    const [last] = await sql`
    select 'audit_refusals_' || to_char((now() at time zone 'UTC')::date + 7, 'YYYYMMDD') as name`
    await sql`drop table ${sql(last!.name)}`
    await sql`alter function drop_audit_partitions rename to missing`
    // One more than one call drops.
    await sql`insert into key_changes (txid, id) select 1, 'apk_' || n from generate_series(1, 50001) as n`
    await sql`
    select create_day_partitions('key_usage', today - 95, today - 95)
    from (select (now() at time zone 'UTC')::date as today) as day`
    const names: string[] = []
    await t.rejects(
      stores.maintain((dropped) => names.push(...dropped)),
      { message: /drop_audit_partitions/ },
    )
    t.match(names, [/^key_usage_\d{8}$/])
    t.equal((await sql`select to_regclass(${last!.name}) as found`)[0]!.found, last!.name)
    t.equal((await sql`select from key_changes`).length, 0, 'nor do changes that nobody asks about stay')
  },
)

t.test('a refusal that finds no partition is a 503, has it created, and the next is a 401', async (t) => {
  const services = await useServices(t)
  const { ask, log, service } = await startInstance(t, services)
  const sql = openDatabase(t, services.databaseUrl)
  const [today] = await sql`
    select 'audit_refusals_' || to_char(now() at time zone 'UTC', 'YYYYMMDD') as name`
  await sql`drop table ${sql(today!.name)}`
  t.equal((await ask('GET', '/v1/verify')).status, 503)
  await until('it is there', () => log.some(({ msg }) => msg === 'missing partitions created'))
  t.equal((await ask('GET', '/v1/verify')).status, 401)
  const metrics = await service.metrics.registry.metrics()
  t.match(metrics, /^latchkey_refusals_total\{reason="missing_header"\} 1$/m, 'the 503 is not counted as one')
})

// AUDIT_RETENTION_DAYS as an operator sees it: a start drops what is older, whole days at a time, and says so.
import postgres from 'postgres'
import t from 'tap'
import { startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

t.test(
  'a start drops the days past AUDIT_RETENTION_DAYS with their entries, keeps the others, and says so',
  async (t) => {
    const services = await useServices(t)
    const first = await startInstance(t, services)
    const refused = (await first.ask('GET', '/v1/verify')).headers.get('x-request-id')!
    const sql = postgres(services.databaseUrl, { max: 1, onnotice: () => {} })
    t.teardown(() => sql.end({ timeout: 1 }))

    /** A partition as the service made it so many days ago, with one entry; answers its name. */
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
    const [old400, old6, young] = [await dayAgo(400), await dayAgo(6), await dayAgo(2)]
    const there = async () => {
      const rows = await sql`select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'audit_refusals'::regclass`
      return rows.map(({ relname }) => relname)
    }
    const found = ({ service }: typeof first) =>
      Promise.all(
        ['req_400', 'req_6', 'req_2', refused].map(
          async (id) => (await service.stores.audit.find(id)).length,
        ),
      )

    const unlimited = await startInstance(t, services)
    t.strictSame(await found(unlimited), [1, 1, 1, 1], 'without it everything is kept')

    const limited = await startInstance(t, services, { AUDIT_RETENTION_DAYS: '4' })
    t.strictSame(await found(limited), [0, 0, 1, 1], 'what is older is found no more')
    const kept = await there()
    t.notOk(kept.includes(old400) || kept.includes(old6))
    t.ok(kept.includes(young))
    t.match(
      limited.log.filter(({ msg }) => msg === 'audit partitions past their retention dropped'),
      [{ partitions: [old400, old6] }],
    )
    t.equal((await limited.ask('GET', '/v1/verify')).status, 401, 'refusals are recorded as before')
  },
)

/** The instances in Postgres: each reports itself, and any of them shows all. */
import { silenceMs } from '../rules/clock-rates.ts'
import type { InstanceStore } from '../stores.ts'
import type { Pool, Query } from './pool.ts'

interface InstancePools {
  instances: Pool
  management: Pool
}

/** More than anybody runs. A crash loop leaves as many dead ones: those seen last are listed. */
const listedMax = 1000

/** `outageTtlMs`: how long an instance may use old copies after its last report. */
export function createInstanceStore(
  { instances, management }: InstancePools,
  { outageTtlMs }: { outageTtlMs: number },
): InstanceStore {
  return {
    fences: {
      raise: () =>
        management.change(async (sql) => {
          const [row] = await sql`select nextval('instance_fences')::float8 as fence`
          return row!.fence
        }),
      passed: (fence) =>
        management.run(async (sql) => {
          const silenceS = silenceMs(outageTtlMs) / 1000
          const [row] = await sql`
            select not exists (
              select from instances
              where fence < ${fence} and seen_at > clock_timestamp() - make_interval(secs => ${silenceS}::float8)
            ) as passed`
          return row!.passed
        }),
    },

    report: ({ id, version, uptimeS, counting, postgres, traffic }, { fence, since }) =>
      instances.run(async (sql) => {
        // Changes may have been deleted during a longer silence, so what came after `since` is unknown.
        // That stays so until the instance asks from a later reply: it may not get this one.
        const asked = sql`snapshot_of_epoch(${since})`
        const isKept = sql`(
          instances.seen_at > now() - interval '5 minutes'
          and txid_snapshot_xmin(instances.changes_since) <= txid_snapshot_xmin(${asked})
        )`
        const [row] = await sql`
          insert into instances (id, version, started_at, seen_at, counting, postgres, traffic, fence, changes_since)
          values (${id}, ${version}, now() - make_interval(secs => ${uptimeS}::float8), now(), ${counting},
            ${postgres}, ${JSON.stringify(traffic)}::text::jsonb, ${fence},
            txid_current_snapshot())
          on conflict (id) do update set
            seen_at = excluded.seen_at, counting = excluded.counting, postgres = excluded.postgres,
            traffic = excluded.traffic, fence = excluded.fence,
            changes_since = case when ${isKept} then ${asked} else excluded.changes_since end
          returning (
            -- An unused sequence has a last value too.
            select case when is_called then last_value else 0 end::float8 from instance_fences
          ) as latest,
          -- The row as it was before.
          key_changes_since((select ${asked} from instances where id = ${id} and ${isKept})) as changes`
        const { server, known, now, changed } = row!.changes
        return { fence: row!.latest, changes: { server, known, nowS: now, changed } }
      }),

    list: (lane) =>
      management.run(async (sql) => {
        const rows = await sql`
          select id, version, extract(epoch from started_at)::float8 as started_at,
            extract(epoch from seen_at)::float8 as seen_at,
            extract(epoch from clock_timestamp() - seen_at)::float8 as silent_s,
            counting, postgres, traffic::text
          from (select * from instances order by seen_at desc, id limit ${listedMax}) as latest
          order by latest.started_at, id`
        return rows.map((row) => ({
          id: row.id,
          version: row.version,
          startedAt: row.started_at,
          seenAt: row.seen_at,
          silentS: Math.max(row.silent_s, 0),
          counting: row.counting,
          postgres: row.postgres,
          traffic: JSON.parse(row.traffic),
        }))
      }, lane),

    remove: (id) =>
      instances.run(async (sql) => {
        await sql`delete from instances where id = ${id}`
      }),
  }
}

/** Rows of instances that have not been heard of for an hour: nothing of them can matter any more. */
export async function dropSilentInstances(sql: Query): Promise<void> {
  await sql`delete from instances where seen_at < now() - interval '1 hour'`
}

/** Drops some that no instance asks about any more. Resolves to how many. */
export async function dropKeyChanges(sql: Query): Promise<number> {
  const [row] = await sql`select drop_key_changes()::float8 as dropped`
  return row!.dropped
}

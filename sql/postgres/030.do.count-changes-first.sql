-- Like 028, but reads at most 20,002 rows. Listing a million changed keys took longer than a report may
-- take, so an instance asked again and again and learned nothing.

-- {"server": …, "known": as of this statement, "now": Unix seconds, "changed": the ids that changed since that
-- snapshot; null without one, and if there are more than 10,000 rows}.
create or replace function key_changes_since(since txid_snapshot) returns json language sql stable as $$
  -- Of the transactions that it does not see: the later ones, and those that were under way.
  with noted as (
    (select id from key_changes where txid >= txid_snapshot_xmax(since) limit 10001)
    union all
    (select id from key_changes where txid in (select txid_snapshot_xip(since)) limit 10001)
  )
  select json_build_object(
    'server', key_server(),
    'known', key_changes_epoch() || ' ' || txid_current_snapshot(),
    'now', extract(epoch from now()),
    'changed', case when since is not null and (select count(*) from noted) <= 10000 then (
      select coalesce(json_agg(distinct id), '[]') from noted
    ) end
  )
$$;

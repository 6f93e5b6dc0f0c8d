-- What has changed of keys and users lately. Each instance asks once a second, and the cached copies of
-- all other keys are then as good as read again. Last uses are no change.
create table key_changes (
  -- Of the transaction. A snapshot says which transactions it sees, so nothing is missed that commits late.
  txid bigint not null,
  -- Of a key, or of a user for all keys of that user.
  id   text not null,
  primary key (txid, id)
);

create function note_key_change() returns trigger language plpgsql security definer as $$
begin
  insert into key_changes values (txid_current(), old.id) on conflict do nothing;
  return null;
end $$;
-- Names in the function refer to this schema (010).
do $$ begin
  execute format('alter function note_key_change() set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function note_key_change() from public;

create trigger note_key_change
after delete or update of user_id, key_hash, rate_limit_rpm, version, expires_at, revoked_at on api_keys
for each row execute function note_key_change();
create trigger note_user_change
after delete or update of deleted_at on users
for each row execute function note_key_change();
-- Also for rows that come by logical replication.
alter table api_keys enable always trigger note_key_change;
alter table users enable always trigger note_user_change;

-- Names this server and its tables. Another one counts its transactions differently; in other tables,
-- rows may have changed without a trigger (restored, truncated). A hash, because each row of a look-up has it.
create function key_server() returns text language sql stable as $$
  select hashtextextended(concat_ws(
    ' ', extract(epoch from pg_postmaster_start_time()), pg_relation_filepath('api_keys'),
    pg_relation_filepath('users'), pg_relation_filepath('key_changes')
  ), 0)::text
$$;

-- What an instance knows of: "<epoch> <snapshot>". A crash begins another epoch: it loses the latest
-- transactions that were not flushed, such as last uses, and their numbers are used again. It also resets
-- the statistics.
create function key_changes_epoch() returns text language sql stable as $$
  select concat_ws('/', key_server(), extract(epoch from pg_stat_get_bgwriter_stat_reset_time()))
$$;

-- null: of another epoch.
create function snapshot_of_epoch(known text) returns txid_snapshot language sql stable as $$
  select case when split_part(known, ' ', 1) = key_changes_epoch() then split_part(known, ' ', 2)::txid_snapshot end
$$;

-- {"server": …, "known": as of this statement, "now": Unix seconds, "changed": the ids that changed since that
-- snapshot, 10,001 at most; null without one}.
create function key_changes_since(since txid_snapshot) returns json language sql stable as $$
  select json_build_object(
    'server', key_server(),
    'known', key_changes_epoch() || ' ' || txid_current_snapshot(),
    'now', extract(epoch from now()),
    'changed', case when since is not null then (
      select coalesce(json_agg(id), '[]') from (
        -- Of the transactions that it does not see: the later ones, and those that were under way.
        select id from key_changes where txid >= txid_snapshot_xmax(since)
        union
        select id from key_changes where txid in (select txid_snapshot_xip(since))
        limit 10001
      ) as changed
    ) end
  )
$$;

-- What the instance's next question may be about at the earliest.
alter table instances add column changes_since txid_snapshot;

-- Deletes what no instance asks about any more, 50,000 rows at most, and returns how many. An instance that
-- was silent for 5 minutes gets no answer (src/postgres/instances.ts). Rows of a later transaction come from
-- a dump of another server.
create function drop_key_changes() returns bigint language sql as $$
  with old as (
    select txid, id from key_changes
    where txid >= txid_snapshot_xmax(txid_current_snapshot()) or txid < coalesce(
      (select min(txid_snapshot_xmin(changes_since)) from instances where seen_at > now() - interval '10 minutes'),
      txid_snapshot_xmin(txid_current_snapshot())
    )
    limit 50000
  ), deleted as (
    delete from key_changes using old where key_changes.txid = old.txid and key_changes.id = old.id returning 1
  )
  select count(*) from deleted
$$;

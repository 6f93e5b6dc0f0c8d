-- Records when keys were last used: [{"id": …, "at": Unix seconds}]. A use older than the stored
-- one changes nothing. The two settings make the join go row by row in the order of the inner
-- select, so rows are locked in the order of ids. Locking them in a separate step costs a third
-- more work and twice the WAL.
create function touch_keys(uses json) returns void language sql
set enable_hashjoin = off set enable_mergejoin = off as $$
  update api_keys k set last_used_at = to_timestamp(u.at)
  from (select id, at from json_to_recordset(uses) as used (id text, at float8) order by id collate "C") u
  where k.id = u.id and (k.last_used_at is null or k.last_used_at < to_timestamp(u.at))
$$;

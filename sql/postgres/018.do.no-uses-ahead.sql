-- touch_keys as before (008), but a use ahead of this clock counts as one of now. A counting clock that
-- was hours ahead for a moment would otherwise leave last uses in the future, which no real one could
-- replace for hours. `ceil`: that clock may be ahead by some milliseconds as a second begins.
create or replace function touch_keys(uses json) returns void language sql
set enable_hashjoin = off set enable_mergejoin = off as $$
  update api_keys k set last_used_at = to_timestamp(u.at)
  from (
    select id, least(at, ceil(extract(epoch from now()))::float8) as at
    from json_to_recordset(uses) as used (id text, at float8) order by id collate "C"
  ) u
  where k.id = u.id and (k.last_used_at is null or k.last_used_at < to_timestamp(u.at))
$$;

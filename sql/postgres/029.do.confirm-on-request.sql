-- touch_and_confirm_keys as before (027), but a use may come without values: {"id": …, "at": Unix seconds}.
-- Its key is then not confirmed, which spares a busy server most of the comparing.
create or replace function touch_and_confirm_keys(uses json) returns json language sql
set enable_hashjoin = off set enable_mergejoin = off as $$
  with touched as (
    update api_keys k set last_used_at = to_timestamp(u.at)
    from (
      select id, least(at, ceil(extract(epoch from now()))::float8) as at,
        user_id, rate_limit_rpm, expires_at, version
      from json_to_recordset(uses) as used (
        id text, at float8, user_id text, rate_limit_rpm integer, expires_at float8, version integer
      ) order by id collate "C"
    ) u
    where k.id = u.id and (k.last_used_at is null or k.last_used_at < to_timestamp(u.at))
    returning k.id, u.version is not null
      and k.user_id = u.user_id and k.rate_limit_rpm = u.rate_limit_rpm and k.version = u.version
      and k.revoked_at is null
      and floor(extract(epoch from nullif(k.expires_at, 'infinity')))::float8 is not distinct from u.expires_at
      and (select deleted_at is null from users where users.id = k.user_id) as is_confirmed
  )
  select coalesce(json_agg(id) filter (where is_confirmed), '[]') from touched
$$;

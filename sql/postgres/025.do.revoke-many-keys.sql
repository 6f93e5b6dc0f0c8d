-- revoke_keys_of_user as before (022), but it knows the keys that it has revoked by their time: to look
-- for each of 100,000 keys in a list of them took longer than a change may.
create or replace function revoke_keys_of_user(owner_id text, entry audit_log)
returns table (key_id text, key_version integer, is_new boolean) language plpgsql as $$
declare
  ten_minutes_ago timestamptz := now() - interval '10 minutes';
  revoked integer;
begin
  -- A creation waits for this, or is seen by the next statement.
  perform 1 from users where id = owner_id for update;
  perform 1 from api_keys
  where user_id = owner_id and revoked_at is null and coalesce(expires_at, 'infinity') > ten_minutes_ago
  order by id for update;
  entry.occurred_at := clock_timestamp();
  update api_keys k set revoked_at = entry.occurred_at, version = k.version + 1
  where k.user_id = owner_id and k.revoked_at is null and coalesce(k.expires_at, 'infinity') > ten_minutes_ago;
  get diagnostics revoked = row_count;
  if revoked > 0 then
    entry.details := json_build_object('revoked', revoked);
    insert into audit_log select entry.*;
  end if;
  return query
    select k.id, k.version, k.revoked_at = entry.occurred_at from api_keys k
    where k.user_id = owner_id and k.revoked_at > ten_minutes_ago;
end $$;

-- The audit entry of a change had the time at which its transaction began. A change that waited for
-- another one's locks was therefore listed before it, although it was made after it. The entry is
-- written under these locks: it has that time now.
create function note_time_of_change() returns trigger language plpgsql as $$
begin
  new.occurred_at := clock_timestamp();
  return new;
end $$;
-- An entry with another time is one that is copied, or was given its own.
create trigger note_time_of_change before insert on audit_changes
for each row when (new.occurred_at = now()) execute function note_time_of_change();

-- revoke_keys_of_user as before (006), but the revocations have one time with their entry, by which
-- the history of a key finds it.
create or replace function revoke_keys_of_user(owner_id text, entry audit_log)
returns table (key_id text, key_version integer, is_new boolean) language plpgsql as $$
declare
  ten_minutes_ago timestamptz := now() - interval '10 minutes';
  revoked_now text[];
begin
  -- A creation waits for this, or is seen by the next statement.
  perform 1 from users where id = owner_id for update;
  perform 1 from api_keys
  where user_id = owner_id and revoked_at is null and coalesce(expires_at, 'infinity') > ten_minutes_ago
  order by id for update;
  entry.occurred_at := clock_timestamp();
  with revoked as (
    update api_keys k set revoked_at = entry.occurred_at, version = k.version + 1
    where k.user_id = owner_id and k.revoked_at is null and coalesce(k.expires_at, 'infinity') > ten_minutes_ago
    returning k.id
  )
  select coalesce(array_agg(id), '{}') into revoked_now from revoked;
  if cardinality(revoked_now) > 0 then
    entry.details := json_build_object('revoked', cardinality(revoked_now));
    insert into audit_log select entry.*;
  end if;
  return query
    select k.id, k.version, k.id = any (revoked_now) from api_keys k
    where k.user_id = owner_id and k.revoked_at > ten_minutes_ago;
end $$;

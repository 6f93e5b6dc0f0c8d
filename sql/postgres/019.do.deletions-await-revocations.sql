-- delete_user as before (007), but it also returns keys revoked in the last 10 minutes, as
-- revoke_keys_of_user does: that revocation may not have reached every instance, and the deletion must
-- not be answered while a key of the user still works anywhere.
create or replace function delete_user(owner_id text, entry audit_log) returns table (key_id text, key_version integer)
language plpgsql as $$
declare
  is_new boolean;
  ten_minutes_ago timestamptz := now() - interval '10 minutes';
begin
  update users set deleted_at = now() where id = owner_id and deleted_at is null;
  is_new := found;
  perform 1 from api_keys
  where user_id = owner_id and revoked_at is null and coalesce(expires_at, 'infinity') > ten_minutes_ago
  order by id for update;
  if is_new then
    entry.occurred_at := now();
    entry.details := json_build_object('usable_keys', (
      select count(*) from api_keys
      where user_id = owner_id and revoked_at is null and coalesce(expires_at, 'infinity') > now()
    ));
    insert into audit_log select entry.*;
  end if;
  return query
    with raised as (
      update api_keys k set version = k.version + 1
      where k.user_id = owner_id and k.revoked_at is null and coalesce(k.expires_at, 'infinity') > ten_minutes_ago
      returning k.id, k.version
    )
    select id, version from raised
    union all
    select k.id, k.version from api_keys k where k.user_id = owner_id and k.revoked_at > ten_minutes_ago;
end $$;

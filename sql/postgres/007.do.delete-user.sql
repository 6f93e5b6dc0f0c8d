-- Soft-deletes a user, writes the audit entry, and raises the version of every key that could be in
-- use: a key that expired 10 minutes ago could not, and a user may have any number of those. Returns
-- the keys also when the user was deleted before: that deletion may not have reached every instance.
create function delete_user(owner_id text, entry audit_log) returns table (key_id text, key_version integer)
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
    update api_keys k set version = k.version + 1
    where k.user_id = owner_id and k.revoked_at is null and coalesce(k.expires_at, 'infinity') > ten_minutes_ago
    returning k.id, k.version;
end $$;

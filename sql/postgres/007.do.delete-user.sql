-- Soft-deletes a user, writes the audit entry, and raises the version of every key that could be in
-- use. Returns those keys also when the user was deleted before: that deletion may not have reached
-- every instance.
create function delete_user(owner_id text, entry audit_log) returns table (key_id text, key_version integer)
language plpgsql as $$
begin
  update users set deleted_at = now() where id = owner_id and deleted_at is null;
  if found then
    entry.occurred_at := now();
    insert into audit_log select entry.*;
  end if;
  return query
    with locked as (
      select id from api_keys where user_id = owner_id and revoked_at is null order by id for update
    )
    update api_keys k set version = k.version + 1 from locked where k.id = locked.id returning k.id, k.version;
end $$;

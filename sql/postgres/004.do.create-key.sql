-- Creates a key and its audit entry if the caller's own key is usable and the owner has room for
-- one more.
-- outcome: created, limit_reached, no_such_user, expires_in_past, or the caller's denial reason.
-- stored: the new row.
create function create_key(
  caller_id text, new_key api_keys, usable_max integer, entry audit_log, out outcome text, out stored api_keys
) language plpgsql as $$
declare
  owner users;
begin
  -- Two creations at the limit wait for each other here, and both wait for a deletion of the user.
  select * into owner from users where id = new_key.user_id for update;
  outcome := caller_denial_reason(caller_id);
  if outcome is not null then return; end if;
  if new_key.expires_at <= clock_timestamp() then
    outcome := 'expires_in_past';
    return;
  end if;
  if owner.id is null or owner.deleted_at is not null then
    outcome := 'no_such_user';
    return;
  end if;
  if usable_max <= (
    select count(*) from api_keys
    where user_id = new_key.user_id and revoked_at is null and coalesce(expires_at, 'infinity') > now()
  ) then
    outcome := 'limit_reached';
    return;
  end if;
  insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix, rate_limit_rpm, expires_at)
  values (
    new_key.id, new_key.user_id, new_key.name, new_key.key_hash, new_key.hash_secret_id, new_key.key_prefix,
    new_key.rate_limit_rpm, new_key.expires_at
  )
  returning * into stored;
  entry.occurred_at := now();
  insert into audit_log select entry.*;
  outcome := 'created';
end $$;

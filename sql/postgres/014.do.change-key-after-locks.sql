-- change_key as before (005), but it judges expiry when it has its locks, as the other functions do:
-- now() is the start of the transaction, so a change that waited for a lock could still move the
-- expiry of a key that had expired meanwhile.
--
-- Changes an active key of the owner (owner_id null: of anyone) and writes the audit entry. A null
-- leaves the old value, except for new_expires_at, which counts whenever sets_expiry is true.
-- outcome: changed, absent, not_active, expires_in_past, or the caller's denial reason. stored: the
-- row after the change.
create or replace function change_key(
  caller_id text, key_id text, owner_id text, new_name text, new_rate_limit_rpm integer, sets_expiry boolean,
  new_expires_at timestamptz, entry audit_log, out outcome text, out stored api_keys
) language plpgsql as $$
begin
  -- Everything that locks several keys does so in the order of their ids, so no two changes can
  -- deadlock.
  perform 1 from api_keys
  where (id = key_id and (owner_id is null or user_id = owner_id)) or id = caller_id
  order by id for no key update;
  outcome := caller_denial_reason(caller_id);
  if outcome is not null then return; end if;
  if sets_expiry and new_expires_at <= clock_timestamp() then
    outcome := 'expires_in_past';
    return;
  end if;
  if not exists (select from api_keys where id = key_id and (owner_id is null or user_id = owner_id)) then
    outcome := 'absent';
    return;
  end if;
  update api_keys set
    version = version + 1,
    name = coalesce(new_name, name),
    rate_limit_rpm = coalesce(new_rate_limit_rpm, rate_limit_rpm),
    expires_at = case when sets_expiry then new_expires_at else expires_at end
  where id = key_id and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
  returning * into stored;
  if not found then
    outcome := 'not_active';
    return;
  end if;
  entry.user_id := stored.user_id;
  entry.occurred_at := now();
  insert into audit_log select entry.*;
  outcome := 'changed';
end $$;

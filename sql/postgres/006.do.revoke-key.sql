-- Revokes a key of the owner (owner_id null: of anyone) and writes the audit entry. A revoked key
-- keeps its time of revocation.
-- outcome: revoked, absent, or the caller's denial reason. stored: the revoked row.
create function revoke_key(
  caller_id text, key_id text, owner_id text, entry audit_log, out outcome text, out stored api_keys
) language plpgsql as $$
begin
  perform 1 from api_keys
  where (id = key_id and (owner_id is null or user_id = owner_id)) or id = caller_id
  order by id for no key update;
  outcome := caller_denial_reason(caller_id);
  if outcome is not null then return; end if;
  select * into stored from api_keys where id = key_id and (owner_id is null or user_id = owner_id);
  if stored.id is null then
    outcome := 'absent';
    return;
  end if;
  outcome := 'revoked';
  if stored.revoked_at is not null then return; end if;
  update api_keys set revoked_at = now(), version = version + 1 where id = key_id returning * into stored;
  entry.user_id := stored.user_id;
  entry.occurred_at := now();
  insert into audit_log select entry.*;
end $$;

-- Revokes every key of the user and writes one audit entry, if there was any to revoke. Returns
-- those keys (is_new), and also those revoked in the last 10 minutes: that change may not have
-- reached every instance, and no cached copy lives longer. For the same reason, a key that expired
-- before that stays as it is: a user may have any number of them.
create function revoke_keys_of_user(owner_id text, entry audit_log)
returns table (key_id text, key_version integer, is_new boolean) language plpgsql as $$
declare
  ten_minutes_ago timestamptz := now() - interval '10 minutes';
  revoked_now text[];
begin
  -- A creation waits for this, or is seen by the next statement.
  perform 1 from users where id = owner_id for update;
  with locked as (
    select id from api_keys
    where user_id = owner_id and revoked_at is null and coalesce(expires_at, 'infinity') > ten_minutes_ago
    order by id for update
  ), revoked as (
    update api_keys k set revoked_at = now(), version = k.version + 1 from locked where k.id = locked.id returning k.id
  )
  select coalesce(array_agg(id), '{}') into revoked_now from revoked;
  if cardinality(revoked_now) > 0 then
    entry.occurred_at := now();
    entry.details := json_build_object('revoked', cardinality(revoked_now));
    insert into audit_log select entry.*;
  end if;
  return query
    select k.id, k.version, k.id = any (revoked_now) from api_keys k
    where k.user_id = owner_id and k.revoked_at > ten_minutes_ago;
end $$;

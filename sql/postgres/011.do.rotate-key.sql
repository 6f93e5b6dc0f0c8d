-- The key that replaced this one. A key is rotated at most once.
alter table api_keys add column successor_id text collate "C"
  constraint a_successor_is_a_key references api_keys (id)
  constraint a_successor_is_another_key check (successor_id <> id);
-- Finds the predecessor of a key. Also: no key replaces two.
create unique index api_keys_by_successor on api_keys (successor_id) where successor_id is not null;

-- Replaces an active key of the owner (owner_id null: of anyone) by a successor with the same
-- owner, name, limit and expiry, and writes the audit entry. The old key is revoked if grace_s is
-- 0. Otherwise it expires in that many seconds, rounded up to a whole second, and never later than
-- before.
-- outcome: rotated, absent, already_rotated, not_active, limit_reached, or the caller's denial
-- reason. rotated: the old key. stored: its successor.
create function rotate_key(
  caller_id text, key_id text, owner_id text, successor api_keys, grace_s integer, usable_max integer, entry audit_log,
  out outcome text, out rotated api_keys, out stored api_keys
) language plpgsql as $$
declare
  owner users;
begin
  -- The user before the keys, as in every change that locks both. A deletion of the user and a
  -- revocation of all their keys wait for this, or are seen by the next statement.
  select u.* into owner from users u join api_keys k on k.user_id = u.id
  where k.id = key_id and (owner_id is null or k.user_id = owner_id)
  for update of u;
  perform 1 from api_keys where (id = key_id and user_id = owner.id) or id = caller_id order by id for no key update;
  outcome := caller_denial_reason(caller_id);
  if outcome is not null then return; end if;
  if owner.id is null then
    outcome := 'absent';
    return;
  end if;
  select * into rotated from api_keys where id = key_id;
  outcome := case
    when rotated.successor_id is not null then 'already_rotated'
    when owner.deleted_at is not null or rotated.revoked_at is not null or rotated.expires_at <= clock_timestamp()
      then 'not_active'
    -- A rotation with a grace period adds a usable key for a while. There is room to rotate every
    -- key once, but not to add keys without end by rotating the successors too.
    when grace_s > 0 and 2 * usable_max <= (
      select count(*) from api_keys
      where user_id = owner.id and revoked_at is null and coalesce(expires_at, 'infinity') > now()
    ) then 'limit_reached'
  end;
  if outcome is not null then return; end if;
  insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix, rate_limit_rpm, expires_at)
  values (
    successor.id, rotated.user_id, rotated.name, successor.key_hash, successor.hash_secret_id, successor.key_prefix,
    rotated.rate_limit_rpm, rotated.expires_at
  )
  returning * into stored;
  update api_keys set
    version = version + 1,
    successor_id = stored.id,
    revoked_at = case when grace_s = 0 then now() end,
    expires_at = case
      when grace_s = 0 then expires_at
      else least(expires_at, to_timestamp(ceil(extract(epoch from clock_timestamp())) + grace_s))
    end
  where id = key_id
  returning * into rotated;
  entry.user_id := owner.id;
  entry.occurred_at := now();
  entry.details := json_build_object(
    'successor_id', stored.id, 'old_key_ends_at',
    floor(extract(epoch from coalesce(rotated.revoked_at, rotated.expires_at)))
  );
  insert into audit_log select entry.*;
  outcome := 'rotated';
end $$;

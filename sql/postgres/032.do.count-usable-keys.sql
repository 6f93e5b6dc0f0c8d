-- A user may have any number of expired keys, which nothing removes. Counting the usable ones walked
-- over all of them (api_keys_not_revoked in 001), under a lock of the user: with 500,000 of them, a
-- creation took 0.1 s, and of 20 at once most failed.
create index api_keys_usable on api_keys (user_id, coalesce(expires_at, 'infinity')) where revoked_at is null;

-- How many usable keys a user has. Stops counting at at_most.
create function usable_keys(owner_id text, at_most integer) returns bigint language sql as $$
  select count(*) from (
    select from api_keys
    where user_id = owner_id and revoked_at is null and coalesce(expires_at, 'infinity') > now()
    -- By the order of the index, or the planner would guess that a third of all keys are usable, and
    -- read the whole table.
    order by coalesce(expires_at, 'infinity') desc
    limit at_most
  ) as usable
$$;

-- As in 004, but for the count.
create or replace function create_key(
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
  if usable_keys(new_key.user_id, usable_max) = usable_max then
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

-- As in 011, but for the count.
create or replace function rotate_key(
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
    when grace_s > 0 and usable_keys(owner.id, 2 * usable_max) = 2 * usable_max then 'limit_reached'
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

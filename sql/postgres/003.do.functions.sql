-- What needs several statements under one lock. As functions, so that the service sends one statement and holds no
-- transaction open: a connection that ends in between leaves nothing half-done on either side. Each statement in a function
-- sees what was committed before it began, so what is counted after a lock is what the lock guards.

-- Why the key that a change is made with may not be used: null if it may, or if it is the operator who changes (no key).
-- Locks it: a revocation of it either is seen here, or waits until the change is made.
create function why_caller_unusable(caller_id text) returns text language plpgsql as $$
declare
  caller api_keys;
  owner users;
begin
  if caller_id is null then return null; end if;
  select * into caller from api_keys where id = caller_id for share;
  select * into owner from users where id = caller.user_id;
  return case
    when caller.id is null then 'unknown_key'
    when caller.revoked_at is not null then 'revoked'
    when caller.expires_at <= clock_timestamp() then 'expired'
    when owner.deleted_at is not null then 'owner_deleted'
  end;
end $$;

-- Makes a key with its audit entry, if the caller's own key is usable and the owner has room. Answers 'created',
-- 'limit_reached', 'no_such_user', or why the caller's key may not be used.
create function create_key(
  caller_id text, key_id text, owner_id text, key_name text, hash bytea, prefix text, rpm integer, expires timestamptz,
  usable_max integer, entry audit_log, out outcome text, out made_at timestamptz
) language plpgsql as $$
declare
  owner users;
begin
  -- Of two creations at the limit one waits for the other, and a deletion of the user for both.
  select * into owner from users where id = owner_id for update;
  outcome := why_caller_unusable(caller_id);
  if outcome is not null then return; end if;
  if owner.id is null or owner.deleted_at is not null then
    outcome := 'no_such_user';
    return;
  end if;
  if usable_max <= (
    select count(*) from api_keys
    where user_id = owner_id and revoked_at is null and (expires_at is null or expires_at > now())
  ) then
    outcome := 'limit_reached';
    return;
  end if;
  insert into api_keys (id, user_id, name, key_hash, key_prefix, rate_limit_rpm, expires_at)
  values (key_id, owner_id, key_name, hash, prefix, rpm, expires)
  returning created_at into made_at;
  entry.occurred_at := now();
  insert into audit_log select entry.*;
  outcome := 'created';
end $$;

-- Changes an active key of the owner with its audit entry: what is null stays, but `expires`, which has a flag of its own.
-- Answers 'changed', 'absent', 'not_active', or why the caller's key may not be used.
create function change_key(
  caller_id text, key_id text, owner_id text, new_name text, rpm integer, sets_expiry boolean, expires timestamptz,
  entry audit_log
) returns text language plpgsql as $$
declare
  refusal text;
begin
  -- In the order of ids, like whoever else locks several keys: no two changes can block each other.
  perform 1 from api_keys where (id = key_id and user_id = owner_id) or id = caller_id order by id for no key update;
  refusal := why_caller_unusable(caller_id);
  if refusal is not null then return refusal; end if;
  if not exists (select from api_keys where id = key_id and user_id = owner_id) then return 'absent'; end if;
  update api_keys set
    version = version + 1,
    name = coalesce(new_name, name),
    rate_limit_rpm = coalesce(rpm, rate_limit_rpm),
    expires_at = case when sets_expiry then expires else expires_at end
  where id = key_id and revoked_at is null and (expires_at is null or expires_at > now());
  if not found then return 'not_active'; end if;
  entry.occurred_at := now();
  insert into audit_log select entry.*;
  return 'changed';
end $$;

-- Revokes a key (of the owner; null: of anyone) with its audit entry. A key revoked before keeps its moment.
-- Answers 'revoked', 'absent', or why the caller's key may not be used.
create function revoke_key(caller_id text, key_id text, owner_id text, entry audit_log)
returns text language plpgsql as $$
declare
  refusal text;
begin
  perform 1 from api_keys
  where (id = key_id and (owner_id is null or user_id = owner_id)) or id = caller_id
  order by id for no key update;
  refusal := why_caller_unusable(caller_id);
  if refusal is not null then return refusal; end if;
  if not exists (select from api_keys where id = key_id and (owner_id is null or user_id = owner_id)) then
    return 'absent';
  end if;
  update api_keys set revoked_at = now(), version = version + 1 where id = key_id and revoked_at is null
  returning user_id into entry.user_id;
  if found then
    entry.occurred_at := now();
    insert into audit_log select entry.*;
  end if;
  return 'revoked';
end $$;

-- Soft-deletes a user with its audit entry, and raises the version of every key that could be in use. Answers those, also
-- when the user was deleted before: that deletion may not have reached every instance.
create function delete_user(owner_id text, entry audit_log) returns table (key_id text, key_version integer)
language plpgsql as $$
begin
  update users set deleted_at = now() where id = owner_id and deleted_at is null;
  if found then
    entry.occurred_at := now();
    insert into audit_log select entry.*;
  end if;
  -- In the order of ids, like whoever else changes several keys: two of them cannot block each other.
  return query
    with locked as (
      select id from api_keys where user_id = owner_id and revoked_at is null order by id for update
    )
    update api_keys k set version = k.version + 1 from locked where k.id = locked.id returning k.id, k.version;
end $$;

-- Notes when keys were last used: [{"id": …, "at": Unix seconds}]. An earlier use than the one known changes nothing.
create function touch_keys(uses json) returns void language sql as $$
  with locked as (
    select k.id, to_timestamp(u.at) as at
    from json_to_recordset(uses) as u (id text, at float8) join api_keys k on k.id = u.id
    where k.last_used_at is null or k.last_used_at < to_timestamp(u.at)
    order by k.id
    for no key update of k
  )
  update api_keys k set last_used_at = locked.at from locked where k.id = locked.id
$$;

-- Makes the audit log's partitions of today (UTC, by this server's clock, which also stamps the entries) and of the coming
-- days, where missing. Made apart and then attached: that lets inserts into the other partitions go on.
create function ensure_audit_partitions(days_ahead integer) returns void language plpgsql as $$
declare
  day date;
  name text;
begin
  perform pg_advisory_xact_lock(hashtext('latchkey audit partitions'));
  for n in 0..days_ahead loop
    day := (now() at time zone 'UTC')::date + n;
    name := 'audit_log_' || to_char(day, 'YYYYMMDD');
    if to_regclass(name) is null then
      execute format('create table %I (like audit_log including defaults including constraints)', name);
      execute format(
        'alter table audit_log attach partition %I for values from (%L) to (%L)',
        name, day || ' 00:00:00+00', day + 1 || ' 00:00:00+00'
      );
    end if;
  end loop;
end $$;

-- Drops the partitions whose every entry is older than so many days, and answers their names.
create function drop_audit_partitions(older_than_days integer) returns setof text language plpgsql as $$
declare
  name text;
begin
  perform pg_advisory_xact_lock(hashtext('latchkey audit partitions'));
  for name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'audit_log'::regclass and c.relname ~ '^audit_log_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (now() at time zone 'UTC')::date - older_than_days
    order by 1
  loop
    -- A reader of it, or a view on it, leaves it for the next time: waiting would hold up every insert.
    begin
      set local lock_timeout = '100ms';
      execute format('drop table %I', name);
      return next name;
    exception when lock_not_available or dependent_objects_still_exist then
      raise warning 'audit partition % is past its retention but in use', name;
    end;
  end loop;
end $$;

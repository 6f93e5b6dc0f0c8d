-- Which HASH_SECRET a key is hashed under, so that it can be told how far a rotation is. An id made of the secret, not the
-- secret; null: not known, the key was made by a version before this one and has not been used since.
alter table api_keys add column hash_secret_id text;

drop function create_key(text, text, text, text, bytea, text, integer, timestamptz, integer, audit_log);

-- `secret_id` may be left out: an instance of the version before goes on minting during a deploy.
-- Makes a key with its audit entry, if the caller's own key is usable and the owner has room. Answers 'created',
-- 'limit_reached', 'no_such_user', or why the caller's key may not be used.
create function create_key(
  caller_id text, key_id text, owner_id text, key_name text, hash bytea, prefix text, rpm integer, expires timestamptz,
  usable_max integer, entry audit_log, secret_id text default null, out outcome text, out made_at timestamptz
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
  insert into api_keys (id, user_id, name, key_hash, key_prefix, rate_limit_rpm, expires_at, hash_secret_id)
  values (key_id, owner_id, key_name, hash, prefix, rpm, expires, secret_id)
  returning created_at into made_at;
  entry.occurred_at := now();
  insert into audit_log select entry.*;
  outcome := 'created';
end $$;

-- Keeps keys under another hash: [{"id": …, "from": hex, "to": hex}]. One whose hash is not `from` any more stays as it is.
create function rehash_keys(hashes json, secret_id text) returns void language sql as $$
  with asked as (
    select h.id, decode(h."from", 'hex') as was, decode(h."to", 'hex') as is_now
    from json_to_recordset(hashes) as h (id text, "from" text, "to" text)
  ), locked as (
    -- In the order of ids, like whoever else locks several keys.
    select k.id, asked.is_now from asked join api_keys k on k.id = asked.id and k.key_hash = asked.was
    order by k.id
    for update of k
  )
  update api_keys k set key_hash = locked.is_now, hash_secret_id = secret_id from locked where k.id = locked.id
$$;

-- Changes are functions, so that each is one statement with its audit entry. The service holds no
-- transaction open, and a lost connection leaves nothing half done. Each statement in a function
-- sees what was committed before that statement began, so a count taken after a lock is exact.

-- Why the key that makes a change may not be used; null if it may, or if an operator makes the
-- change (no key). Locks the key: a revocation of it is either seen here or waits until the change
-- is made.
create function caller_denial_reason(caller_id text) returns text language plpgsql as $$
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

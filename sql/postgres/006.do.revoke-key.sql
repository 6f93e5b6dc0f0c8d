-- Revokes a key of the owner (owner_id null: of anyone) and writes the audit entry. A revoked key keeps its time of revocation.
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

-- There may be many refusals, and they are stored for a while. Changes of keys and users are few,
-- and are stored for good. So refusals have one partition a day (UTC), which the service creates
-- ahead and drops whole: retention never deletes row by row.
create table audit_log (
  id            text not null,
  occurred_at   timestamptz not null default now(),
  request_id    text not null,
  event         text not null,
  reason        text,
  key_id        text,
  user_id       text,
  -- Who made a change: key:apk_…, operator:<name>, cli:<os user> or partner:github.
  actor         text,
  method        text,
  path          text,
  ip            text,
  user_agent    text,
  details       jsonb,
  primary key (event, occurred_at, id),
  constraint audit_ids_begin_with_aud check (id like 'aud\_%'),
  constraint only_refusals_have_a_reason check (
    (reason is not null) = (event in ('auth.refused', 'operator.refused'))
  )
) partition by list (event);

create table audit_refusals partition of audit_log for values in ('auth.refused', 'operator.refused')
  partition by range (occurred_at);
create table audit_changes partition of audit_log default;

create index audit_log_by_request on audit_log (request_id);
-- Every refusal has an entry in both of these, even without a known key: the 401 of an unknown key
-- must not be sent sooner than that of a known one because its audit entry is less work to write.
create index audit_log_by_key on audit_log (key_id, occurred_at);
create index audit_log_by_user on audit_log (user_id, occurred_at);

-- One partition a day (UTC), made ahead and dropped by the service: retention never deletes row by row.
create table audit_log (
  id            text not null,
  occurred_at   timestamptz not null default now(),
  request_id    text not null,
  event         text not null,
  reason        text,
  key_id        text,
  user_id       text,
  actor_key_id  text,
  method        text,
  path          text,
  ip            text,
  user_agent    text,
  details       jsonb,
  primary key (occurred_at, id),
  constraint audit_ids_begin_with_aud check (id like 'aud\_%'),
  constraint only_refusals_have_a_reason check ((reason is not null) = (event = 'auth.refused'))
) partition by range (occurred_at);

create index audit_log_by_request on audit_log (request_id);
create index audit_log_by_key on audit_log (key_id, occurred_at) where key_id is not null;

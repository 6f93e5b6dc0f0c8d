-- One page of the audit log, newest first. An argument that is null narrows nothing down.
--
-- Each call gets its own plan. With a plan made for any key or user, Postgres would fetch and sort all
-- entries of a key that was refused a million times; with one made for any time, it would read every day.
create function audit_entries(
  of_events text[], of_request text, of_key text, of_user text, of_reason text,
  since timestamptz, until timestamptz, before_at timestamptz, before_id text, most bigint
) returns setof audit_log language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return query
    select * from audit_log
    -- An event by itself is read in the order of the primary key.
    where event = any (of_events) and (cardinality(of_events) > 1 or event = of_events[1])
      and (of_request is null or request_id = of_request)
      and (of_key is null or key_id = of_key)
      and (of_user is null or user_id = of_user)
      and (of_reason is null or reason = of_reason)
      and (since is null or occurred_at >= since)
      and (until is null or occurred_at < until)
      and (before_at is null or (occurred_at, id) < (before_at, before_id))
    order by occurred_at desc, id desc
    limit most;
end $$;

-- roll_up_usage as before (023), but it asks the index for the newest hour and day. To look for any that
-- is newer than some time, Postgres read all hours of a year, each minute.
create or replace function roll_up_usage(now timestamptz) returns boolean language plpgsql set work_mem = '64MB' as $$
declare
  over timestamptz := now - interval '3 minutes';
  newest timestamptz;
  next timestamptz;
begin
  perform pg_advisory_xact_lock(hashtext('latchkey usage'));
  newest := over - interval '1 hour';
  if (select max(starts_at) from key_usage_hours) > newest + interval '1 minute' then
    delete from key_usage_hours h where starts_at > newest + interval '1 minute' and exists (
      select from key_usage m
      where m.starts_at >= h.starts_at and m.starts_at < h.starts_at + interval '1 hour' and m.key_id = h.key_id
    );
  end if;
  select date_trunc('hour', min(starts_at), 'UTC') into next from key_usage
  where starts_at >= (
    select coalesce(max(starts_at) + interval '1 hour', '-infinity') from key_usage_hours where starts_at <= newest
  );
  if next + interval '1 hour' <= over then
    insert into key_usage_hours (starts_at, key_id, requests, limited)
    select next, key_id, sum(requests), sum(limited) from key_usage
    where starts_at >= next and starts_at < next + interval '1 hour'
    group by key_id order by key_id
    on conflict do nothing;
    return true;
  end if;
  newest := over - interval '24 hours';
  if (select max(starts_at) from key_usage_days) > newest + interval '1 minute' then
    delete from key_usage_days d where starts_at > newest + interval '1 minute' and exists (
      select from key_usage_hours h
      where h.starts_at >= d.starts_at and h.starts_at < d.starts_at + interval '24 hours' and h.key_id = d.key_id
    );
  end if;
  select date_trunc('day', min(starts_at), 'UTC') into next from key_usage_hours
  where starts_at >= (
    select coalesce(max(starts_at) + interval '24 hours', '-infinity') from key_usage_days where starts_at <= newest
  );
  if next + interval '24 hours' <= over then
    insert into key_usage_days (starts_at, key_id, requests, limited)
    select next, key_id, sum(requests), sum(limited) from key_usage_hours
    where starts_at >= next and starts_at < next + interval '24 hours'
    group by key_id order by key_id
    on conflict do nothing;
    return true;
  end if;
  return false;
end $$;

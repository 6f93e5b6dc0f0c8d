-- A clock that was hours ahead rolled up hours that had just begun. "The next hour" is the one after
-- the newest, so every hour until then was left out, and those had a part of their requests for good.
--
-- roll_up_usage as before (012), but what is not over yet is rolled up again when it is, and does not
-- count as the newest. It stays if its minutes (of a day: its hours) are gone: the clock may as well be
-- behind now. A minute is no difference between clocks.
create or replace function roll_up_usage(now timestamptz) returns boolean language plpgsql set work_mem = '64MB' as $$
declare
  over timestamptz := now - interval '3 minutes';
  newest timestamptz;
  next timestamptz;
begin
  perform pg_advisory_xact_lock(hashtext('latchkey usage'));
  newest := over - interval '1 hour';
  if exists (select from key_usage_hours where starts_at > newest + interval '1 minute') then
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
  if exists (select from key_usage_days where starts_at > newest + interval '1 minute') then
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

-- drop_usage_partitions as before (020), but what a clock that was ahead has rolled up does not count
-- here either, and the minutes that are incomplete are kept as long as days are: their days have fewer
-- requests than there were, and would look exact without them.
create or replace function drop_usage_partitions(older_than_days integer) returns setof text
language plpgsql security definer as $$
declare
  today date := (now() at time zone 'UTC')::date;
  kept_from timestamptz := (today - greatest(older_than_days, 400))::timestamp at time zone 'UTC';
  pending date;
  oldest timestamptz;
begin
  if older_than_days < 1 then
    raise 'usage is kept for at least a day' using errcode = 'invalid_parameter_value';
  end if;
  -- Before anything is read.
  if not pg_try_advisory_xact_lock(hashtext('latchkey partitions of key_usage')) then return; end if;
  select (min(starts_at) at time zone 'UTC')::date into pending from key_usage
  where starts_at >= (
    select coalesce(max(starts_at) + interval '1 hour', '-infinity') from key_usage_hours
    where starts_at <= now() - interval '1 hour'
  );
  return query select drop_day_partitions('key_usage', least(today - older_than_days, pending));
  if found then return; end if;
  select date_trunc('day', min(starts_at), 'UTC') into oldest from key_usage_hours;
  delete from key_usage_hours where starts_at < least(oldest + interval '24 hours', kept_from)
    and starts_at < (
      select date_trunc('day', max(starts_at), 'UTC') from key_usage_days where starts_at <= now() - interval '24 hours'
    );
  if found then
    return next 'key_usage_hours of ' || to_char(oldest at time zone 'UTC', 'YYYYMMDD');
  end if;
  -- 1,440 a day, less the few that are incomplete.
  delete from usage_minutes where starts_at < kept_from
    and not (stored is null or stored < reported or (may_lack_counts and unreported > 0));
end $$;

-- `create or replace` forgets it.
do $$ begin
  execute format('alter function drop_usage_partitions(integer) set search_path = %I, pg_temp', current_schema());
end $$;

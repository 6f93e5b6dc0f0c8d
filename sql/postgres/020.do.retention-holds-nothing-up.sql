-- Creating and dropping partitions as before (010, 017, 012), but retention holds up nobody:
-- * A start that finds its partitions waits for no lock, so not for a retention under way either.
-- * Of instances that drop at the same moment, one does, and the others leave it to that one. They
--   waited for its lock while they had read `key_usage`, which it wanted to itself: a deadlock.
-- * A call gives up after 5 partitions that are in use. A backup holds all of them, and 0.1 s for each
--   of hundreds was most of a minute.
-- * Hours are deleted a day at a time, in a call that has dropped no partition. All at once, they might
--   take longer than a call may, and then nothing was ever dropped.

-- Creates the missing partitions of these days. Creating a table first and then attaching it lets
-- inserts into the other partitions continue.
create or replace function create_day_partitions(parent text, first_day date, last_day date) returns void
language plpgsql set datestyle = 'ISO' as $$
declare
  day date;
  name text;
begin
  if not exists (
    select from generate_series(0, last_day - first_day) as n where not exists (
      select from pg_class join pg_namespace s on s.oid = relnamespace
      where s.nspname = current_schema() and relname = parent || '_' || to_char(first_day + n, 'YYYYMMDD')
    )
  ) then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtext('latchkey partitions of ' || parent));
  for n in 0..(last_day - first_day) loop
    day := first_day + n;
    name := parent || '_' || to_char(day, 'YYYYMMDD');
    -- Only now: what `to_regclass` has not found, it might not find again, though it is there.
    if to_regclass(format('%I.%I', current_schema(), name)) is null then
      execute format('create table %I (like %I including defaults including constraints)', name, parent);
      execute format(
        'alter table %I attach partition %I for values from (%L) to (%L)',
        parent, name, day || ' 00:00:00+00', day + 1 || ' 00:00:00+00'
      );
    end if;
  end loop;
end $$;

-- Drops the partitions of all days before this one, the oldest 50 at most, and returns their names.
-- Each holds 13 locks until the call ends. The caller repeats. Nothing while another call is at it.
create or replace function drop_day_partitions(parent text, before_day date) returns setof text language plpgsql as $$
declare
  name text;
  dropped integer := 0;
  busy integer := 0;
begin
  if not pg_try_advisory_xact_lock(hashtext('latchkey partitions of ' || parent)) then return; end if;
  for name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = parent::regclass and c.relname ~ ('^' || parent || '_[0-9]{8}$')
      and to_date(right(c.relname, 8), 'YYYYMMDD') < before_day
    order by 1
  loop
    -- A partition in use by a reader or a view stays until the next run. Waiting for it would hold
    -- up every insert.
    begin
      set local lock_timeout = '100ms';
      execute format('drop table %I', name);
      return next name;
      dropped := dropped + 1;
    exception
      when lock_not_available then
        raise warning 'partition % is past its retention but in use', name;
        busy := busy + 1;
      when dependent_objects_still_exist then
        raise warning 'partition % is past its retention but in use', name;
    end;
    exit when dropped = 50 or busy = 5;
  end loop;
end $$;

-- Drops the days older than that which are rolled up, and returns the names of their partitions. If
-- there are none, it deletes the oldest day of hours that is past its time, and returns its name. Hours,
-- and what is known of each minute as a whole, are kept for 400 days or as long as minutes are; days
-- are kept. The caller repeats.
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
  where starts_at >= (select coalesce(max(starts_at) + interval '1 hour', '-infinity') from key_usage_hours);
  return query select drop_day_partitions('key_usage', least(today - older_than_days, pending));
  if found then return; end if;
  select date_trunc('day', min(starts_at), 'UTC') into oldest from key_usage_hours;
  delete from key_usage_hours where starts_at < least(oldest + interval '24 hours', kept_from)
    and starts_at < (select date_trunc('day', max(starts_at), 'UTC') from key_usage_days);
  if found then
    return next 'key_usage_hours of ' || to_char(oldest at time zone 'UTC', 'YYYYMMDD');
  end if;
  -- 1,440 a day.
  delete from usage_minutes where starts_at < kept_from;
end $$;

-- `create or replace` forgets it.
do $$ begin
  execute format('alter function drop_usage_partitions(integer) set search_path = %I, pg_temp', current_schema());
end $$;

-- One partition a day (UTC, by this server's clock), created ahead of time and dropped whole once it
-- is past its retention. The first two functions do the work for any table. The last two run with
-- the rights of their owner, so that the service needs none to create or drop a table: see "A role
-- without DDL" in docs/operations.md.

-- Creates the missing partitions of these days. Creating a table first and then attaching it lets
-- inserts into the other partitions continue.
create function create_day_partitions(parent text, first_day date, last_day date) returns void language plpgsql as $$
declare
  day date;
  name text;
begin
  perform pg_advisory_xact_lock(hashtext('latchkey partitions of ' || parent));
  for n in 0..(last_day - first_day) loop
    day := first_day + n;
    name := parent || '_' || to_char(day, 'YYYYMMDD');
    if to_regclass(format('%I.%I', current_schema(), name)) is null then
      execute format('create table %I (like %I including defaults including constraints)', name, parent);
      execute format(
        'alter table %I attach partition %I for values from (%L) to (%L)',
        parent, name, day || ' 00:00:00+00', day + 1 || ' 00:00:00+00'
      );
    end if;
  end loop;
end $$;

-- Drops the partitions of all days before this one, and returns their names.
create function drop_day_partitions(parent text, before_day date) returns setof text language plpgsql as $$
declare
  name text;
begin
  perform pg_advisory_xact_lock(hashtext('latchkey partitions of ' || parent));
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
    exception when lock_not_available or dependent_objects_still_exist then
      raise warning 'partition % is past its retention but in use', name;
    end;
  end loop;
end $$;

-- The partitions for the refusals of today and of the coming days.
create function ensure_audit_partitions(days_ahead integer) returns void language plpgsql security definer as $$
declare
  today date := (now() at time zone 'UTC')::date;
begin
  -- Otherwise any caller of this function could fill the catalog with tables.
  if days_ahead not between 0 and 31 then
    raise 'audit partitions are made at most 31 days ahead' using errcode = 'invalid_parameter_value';
  end if;
  perform create_day_partitions('audit_refusals', today, today + days_ahead);
end $$;

-- Drops the partitions in which every refusal is older than the given number of days, and returns
-- their names.
create function drop_audit_partitions(older_than_days integer) returns setof text language plpgsql security definer as $$
begin
  if older_than_days < 1 then
    raise 'audit entries are kept for at least a day' using errcode = 'invalid_parameter_value';
  end if;
  return query
    select drop_day_partitions('audit_refusals', (now() at time zone 'UTC')::date - older_than_days);
end $$;

-- Names in the functions refer to this schema, whatever the caller's search_path. pg_temp is last,
-- because Postgres would search it first if it were absent.
do $$ begin
  execute format('alter function ensure_audit_partitions(integer) set search_path = %I, pg_temp', current_schema());
  execute format('alter function drop_audit_partitions(integer) set search_path = %I, pg_temp', current_schema());
end $$;

revoke execute on function ensure_audit_partitions(integer), drop_audit_partitions(integer) from public;

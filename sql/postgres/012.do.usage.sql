-- How often each key was used: by minute (a partition a day, dropped whole past its retention), and
-- rolled up by hour and by day (UTC). The time comes first in each primary key: a minute's rows are
-- then written to a few pages at the end of the index, not to one page for each key. A reader names
-- its 1,500 points at most, and each is one look-up.
create table key_usage (
  starts_at timestamptz not null,
  requests  integer not null,
  -- Those beyond the key's limit, as it was when the minute was stored.
  limited   integer not null,
  key_id    text collate "C" not null,
  primary key (starts_at, key_id),
  constraint limited_requests_are_requests check (limited between 0 and requests)
) partition by range (starts_at);

create table key_usage_hours (
  starts_at timestamptz not null,
  requests  bigint not null,
  limited   bigint not null,
  key_id    text collate "C" not null,
  primary key (starts_at, key_id)
);

create table key_usage_days (like key_usage_hours including all);

-- What is known of a minute as a whole. It is complete if the counters that were stored hold every
-- request that the instances say they have counted: a request that was counted by an instance alone,
-- or lost with Redis, is in one sum and not in the other.
create table usage_minutes (
  starts_at     timestamptz primary key,
  -- Requests that the instances have counted, each adding its own.
  reported      bigint not null default 0,
  -- Requests stored in key_usage; null as long as not every counter was read.
  stored        bigint,
  -- No instance needs to read the counters of this minute again.
  is_done       boolean not null default false,
  -- The instance that is reading them has until then.
  claimed_until timestamptz not null default '-infinity'
);

create index usage_minutes_incomplete on usage_minutes (starts_at) where stored is null or stored < reported;

-- Stores the counts of one minute, both lists separated by commas. Storing again changes nothing;
-- only a higher count replaces a lower one. A key that is not ours (another database may count in
-- the same Redis) is left out. The order of the ids keeps two instances from deadlocking.
create function store_usage(minute timestamptz, ids text, counts text) returns void language sql as $$
  insert into key_usage as known (starts_at, key_id, requests, limited)
  select minute, k.id, c.requests, greatest(0, c.requests - k.rate_limit_rpm)
  from unnest(string_to_array(ids, ','), string_to_array(counts, ',')::integer[]) as c (id, requests)
  join api_keys k on k.id = c.id
  order by k.id
  on conflict (starts_at, key_id) do update set requests = excluded.requests, limited = excluded.limited
  where excluded.requests > known.requests
$$;

-- Rolls up the next hour that is over by then, or the next day if no hour is left. One at a time,
-- each in one transaction, so what is there is whole. Returns whether there was one. Counters outlive
-- their minute by 2 minutes, so nothing is stored for an hour 3 minutes after its end.
create function roll_up_usage(now timestamptz) returns boolean language plpgsql set work_mem = '64MB' as $$
declare
  over timestamptz := now - interval '3 minutes';
  next timestamptz;
begin
  perform pg_advisory_xact_lock(hashtext('latchkey usage'));
  select date_trunc('hour', min(starts_at), 'UTC') into next from key_usage
  where starts_at >= (select coalesce(max(starts_at) + interval '1 hour', '-infinity') from key_usage_hours);
  if next + interval '1 hour' <= over then
    insert into key_usage_hours (starts_at, key_id, requests, limited)
    select next, key_id, sum(requests), sum(limited) from key_usage
    where starts_at >= next and starts_at < next + interval '1 hour'
    group by key_id order by key_id;
    return true;
  end if;
  select date_trunc('day', min(starts_at), 'UTC') into next from key_usage_hours
  where starts_at >= (select coalesce(max(starts_at) + interval '1 day', '-infinity') from key_usage_days);
  if next + interval '1 day' <= over then
    insert into key_usage_days (starts_at, key_id, requests, limited)
    select next, key_id, sum(requests), sum(limited) from key_usage_hours
    where starts_at >= next and starts_at < next + interval '1 day'
    group by key_id order by key_id;
    return true;
  end if;
  return false;
end $$;

-- The partitions from yesterday on (a minute may be stored after midnight) to the coming days.
create function ensure_usage_partitions(days_ahead integer) returns void language plpgsql security definer as $$
declare
  today date := (now() at time zone 'UTC')::date;
begin
  if days_ahead not between 0 and 31 then
    raise 'usage partitions are made at most 31 days ahead' using errcode = 'invalid_parameter_value';
  end if;
  perform create_day_partitions('key_usage', today - 1, today + days_ahead);
end $$;

-- Drops the days older than that which are rolled up, and returns the names of their partitions.
-- Hours, and what is known of each minute as a whole, are kept for 400 days or as long as minutes
-- are; days are kept.
create function drop_usage_partitions(older_than_days integer) returns setof text language plpgsql security definer as $$
declare
  today date := (now() at time zone 'UTC')::date;
  kept_from timestamptz := (today - greatest(older_than_days, 400))::timestamp at time zone 'UTC';
  pending date;
begin
  if older_than_days < 1 then
    raise 'usage is kept for at least a day' using errcode = 'invalid_parameter_value';
  end if;
  select (min(starts_at) at time zone 'UTC')::date into pending from key_usage
  where starts_at >= (select coalesce(max(starts_at) + interval '1 hour', '-infinity') from key_usage_hours);
  return query select drop_day_partitions('key_usage', least(today - older_than_days, pending));
  delete from key_usage_hours where starts_at < kept_from
    and starts_at < (select date_trunc('day', max(starts_at), 'UTC') from key_usage_days);
  delete from usage_minutes where starts_at < kept_from;
end $$;

do $$ begin
  execute format('alter function ensure_usage_partitions(integer) set search_path = %I, pg_temp', current_schema());
  execute format('alter function drop_usage_partitions(integer) set search_path = %I, pg_temp', current_schema());
end $$;

revoke execute on function ensure_usage_partitions(integer), drop_usage_partitions(integer) from public;

-- An instance that is killed reports nothing of its last minute. `stored < reported` then no longer
-- shows what was counted by another instance alone, or lost with Redis, in the same minute. So each
-- instance also says when it begins and ends a minute, and whether counts may be missing from Redis.
alter table usage_minutes
  -- Instances that have begun to count in this minute and not reported it.
  add column unreported integer not null default 0,
  -- An instance has counted alone, or has seen that Redis was away or lost counts.
  add column may_lack_counts boolean not null default false;

drop index usage_minutes_incomplete;
create index usage_minutes_incomplete on usage_minutes (starts_at)
  where stored is null or stored < reported or (may_lack_counts and unreported > 0);

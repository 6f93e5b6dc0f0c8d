-- drop_day_partitions as before (010), but one call drops at most 50 partitions, the oldest first. Each
-- holds 13 locks until the call ends: with hundreds of days past a shorter retention, the lock table of
-- the server was full, and none was ever dropped. 50 need 650 of its usual 6,400. The caller repeats.
--
-- Drops the partitions of all days before this one, and returns their names.
create or replace function drop_day_partitions(parent text, before_day date) returns setof text language plpgsql as $$
declare
  name text;
  dropped integer := 0;
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
      dropped := dropped + 1;
    exception when lock_not_available or dependent_objects_still_exist then
      raise warning 'partition % is past its retention but in use', name;
    end;
    exit when dropped = 50;
  end loop;
end $$;

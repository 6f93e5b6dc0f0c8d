-- A day of the usage history is one of UTC. In the time zone of a session, `interval '1 day'` has 23 or
-- 25 hours when the clocks change: then the next day could not be rolled up, or an hour was in two days.
alter function roll_up_usage(timestamptz) set timezone = 'UTC';

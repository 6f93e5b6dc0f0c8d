-- The bounds of a partition are days written as text and read again. In the DateStyle of a session that
-- may fail, or swap day and month: `German, MDY` writes 05.10.2026 for 5 October and reads 10 May.
alter function create_day_partitions(text, date, date) set datestyle = 'ISO';

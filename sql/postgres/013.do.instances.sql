-- One row for each running instance, which it updates once a second. A clean stop deletes it.
create table instances (
  id         text primary key,
  version    text not null,
  started_at timestamptz not null,
  -- By this server's clock, as are all times here.
  seen_at    timestamptz not null,
  -- How the instance counts: shared, local or memory.
  counting   text not null,
  -- Whether its last look-up of a key succeeded: ok or away.
  postgres   text not null,
  -- What it has answered since its start (Traffic in src/stores.ts).
  traffic    jsonb not null,
  -- The instance goes on with no copy of a key that it read before it first reported this fence.
  fence      bigint not null,
  constraint instance_ids_begin_with_ins check (id like 'ins\_%')
) with (fillfactor = 20); -- every update fits on the same page (HOT)

-- Raised by a change that Redis has not confirmed (src/guard/old-copies.ts).
create sequence instance_fences;

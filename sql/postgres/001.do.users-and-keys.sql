create table users (
  id          text primary key,
  name        text not null,
  -- What the operator's own system calls this user.
  external_id text constraint external_id_is_unique unique,
  created_at  timestamptz not null default now(),
  deleted_at  timestamptz,
  constraint user_ids_begin_with_usr check (id like 'usr\_%'),
  constraint user_name_is_not_blank check (name ~ '\S'),
  constraint external_id_is_not_blank check (external_id ~ '\S'),
  constraint external_id_has_at_most_255_characters check (char_length(external_id) <= 255),
  constraint external_id_has_no_control_characters check (external_id !~ '[\u0001-\u001f\u007f-\u009f]')
);

-- The order and the cursor of GET /admin/users.
create index users_newest_first on users (created_at desc, id desc);

create table api_keys (
  id              text collate "C" primary key,
  user_id         text not null references users (id),
  name            text not null,
  key_hash        bytea not null unique,
  -- Identifies the HASH_SECRET behind key_hash, so that an operator can follow a rotation. It does
  -- not reveal the secret.
  hash_secret_id  text not null,
  key_prefix      text not null,
  rate_limit_rpm  integer not null default 1000,
  -- Every change raises it; cached copies are compared with it.
  version         integer not null default 1,
  created_at      timestamptz not null default now(),
  expires_at      timestamptz,
  revoked_at      timestamptz,
  last_used_at    timestamptz,
  constraint key_ids_begin_with_apk check (id like 'apk\_%'),
  constraint key_name_is_not_blank check (name ~ '\S'),
  constraint key_name_has_at_most_255_characters check (char_length(name) <= 255),
  constraint key_hash_is_an_hmac_sha256 check (octet_length(key_hash) = 32),
  constraint rate_limit_rpm_is_positive check (rate_limit_rpm > 0),
  constraint rate_limit_rpm_is_at_most_a_billion check (rate_limit_rpm <= 1000000000),
  constraint version_is_positive check (version > 0)
) with (fillfactor = 80); -- last_used_at changes often: room for the new row version on the same page (HOT)

-- A user's keys, newest first: the order and the cursor of GET /v1/keys.
create index api_keys_of_user on api_keys (user_id, created_at desc, id desc);
-- The same order for each value of ?status=. The second one serves `active` and `expired`: with the
-- expiry as a key column, the scan skips keys of the other status without visiting the table. It
-- also counts usable keys (MAX_KEYS_PER_USER).
create index api_keys_revoked on api_keys (user_id, created_at desc, id desc) where revoked_at is not null;
create index api_keys_not_revoked
  on api_keys (user_id, created_at desc, id desc, coalesce(expires_at, 'infinity')) include (expires_at)
  where revoked_at is null;
-- The same order for GET /admin/keys: of all users, and with one prefix.
create index api_keys_newest_first on api_keys (created_at desc, id desc);
create index api_keys_by_prefix on api_keys (key_prefix, created_at desc, id desc);

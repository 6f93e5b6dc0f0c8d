-- api_keys_revoked and api_keys_not_revoked (001) for the keys of all users: GET /admin/keys?status=.
create index api_keys_revoked_newest_first on api_keys (created_at desc, id desc) where revoked_at is not null;
create index api_keys_not_revoked_newest_first
  on api_keys (created_at desc, id desc, coalesce(expires_at, 'infinity')) where revoked_at is null;

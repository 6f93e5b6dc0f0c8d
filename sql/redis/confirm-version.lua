-- Confirms the version that was read from Postgres under a lease (sql/redis/hit.lua). Does nothing
-- if the lease is gone: the key has changed since, or Redis has lost its data.
--
-- KEYS[1]  rl:{<key id>}:v
-- ARGV[1]  the lease
-- ARGV[2]  the version that was read
-- ARGV[3]  seconds until it expires; longer than any instance trusts a cached copy

if redis.call('get', KEYS[1]) == ARGV[1] then
  redis.call('set', KEYS[1], ARGV[2], 'ex', tonumber(ARGV[3]))
end

-- Confirms versions that were read from Postgres under a lease (sql/redis/hit.lua), one for each
-- API key. Does nothing for a key whose lease is gone: the key has changed since, or Redis has lost
-- its data.
--
-- KEYS[i]    rl:{<key id>}:v, the version of API key i; in a cluster a call has one API key
-- ARGV[1]    seconds until they expire; longer than any instance trusts a cached copy
-- ARGV[2i]   the lease of API key i
-- ARGV[2i+1] the version that was read

local stored = redis.call('mget', unpack(KEYS))
for i, name in ipairs(KEYS) do
  if stored[i] == ARGV[2 * i] then redis.call('set', name, ARGV[2 * i + 1], 'ex', ARGV[1]) end
end

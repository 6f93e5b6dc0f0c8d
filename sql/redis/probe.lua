-- Checks that this server counts, and that this user may run every command that counting needs. It
-- uses a name that nothing else uses, and leaves nothing behind.
--
-- KEYS[1]  rl:{<any id>}:probe
-- Returns  { seconds, microseconds }

local now = redis.call('time')
redis.call('mget', KEYS[1])
redis.call('get', KEYS[1])
redis.call('set', KEYS[1], 0)
redis.call('incrby', KEYS[1], 1)
-- An expiry of 0 removes the key immediately.
redis.call('expire', KEYS[1], 0)
return { tonumber(now[1]), tonumber(now[2]) }

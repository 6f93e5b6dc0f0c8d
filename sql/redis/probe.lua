-- Tells whether this server counts, and does for this user all that the other scripts ask of it. To a name that nobody else uses,
-- and nothing is left behind.
--
-- KEYS[1]  rl:{<any id>}:probe
-- Answers  { seconds, microseconds }

local now = redis.call('time')
redis.call('mget', KEYS[1])
redis.call('get', KEYS[1])
redis.call('exists', KEYS[1])
redis.call('ttl', KEYS[1])
redis.call('set', KEYS[1], 0)
redis.call('incrby', KEYS[1], 1)
-- An expiry of nothing removes the key at once.
redis.call('expire', KEYS[1], 0)
return { tonumber(now[1]), tonumber(now[2]) }

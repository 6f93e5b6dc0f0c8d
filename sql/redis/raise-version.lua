-- Publishes that an API key has changed: replaces its version by a lease, so that every instance
-- reads the key again. The lease demands the version of the change, or a later one that was
-- published before. See sql/redis/hit.lua.
--
-- KEYS[1]  rl:{<key id>}:v
-- ARGV[1]  the version after the change
-- ARGV[2]  seconds until it expires; longer than any instance trusts a cached copy
-- Returns  the version that the lease demands

local version = tonumber(ARGV[1])
local reply = redis.pcall('get', KEYS[1])
-- Anything else is neither a version nor a lease.
local digits = type(reply) == 'string' and #reply < 40 and string.match(reply, '^(%d+)%??[%d.]*$')
local known = digits and #digits < 11 and tonumber(digits) or 0
if known > version then version = known end
local now = redis.call('time')
redis.call('set', KEYS[1], string.format('%d?', version) .. now[1] .. '.' .. now[2], 'ex', tonumber(ARGV[2]))
return version

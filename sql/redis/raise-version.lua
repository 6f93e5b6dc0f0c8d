-- Publishes that an API key has changed. Never lowers a version: if two changes are published out
-- of order, the later version stays.
--
-- KEYS[1]  rl:{<key id>}:v
-- ARGV[1]  the version after the change
-- ARGV[2]  seconds until it expires; longer than any instance trusts a cached copy
-- Returns  the version that is stored now

local version = tonumber(ARGV[1])
local reply = redis.pcall('get', KEYS[1])
-- Anything else is not a version; sql/redis/hit.lua agrees.
local isVersion = type(reply) == 'string' and #reply < 11 and string.find(reply, '^%d+$')
local known = isVersion and tonumber(reply) or 0
if known > version then version = known end
redis.call('set', KEYS[1], string.format('%d', version), 'ex', tonumber(ARGV[2]))
return version

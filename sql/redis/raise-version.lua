-- Publishes that an API key has changed. Never lowers a version: of two changes whose news cross, the later one stays.
--
-- KEYS[1]  rl:{<key id>}:v
-- ARGV[1]  the version after the change
-- ARGV[2]  seconds to keep it; longer than any instance may believe a cached copy
-- Answers  the version that now stands

local version = tonumber(ARGV[1])
local reply = redis.pcall('get', KEYS[1])
-- Anything else is no version, to sql/redis/hit.lua neither.
local isVersion = type(reply) == 'string' and #reply < 11 and string.find(reply, '^%d+$')
local known = isVersion and tonumber(reply) or 0
if known > version then version = known end
redis.call('set', KEYS[1], string.format('%d', version), 'ex', tonumber(ARGV[2]))
return version

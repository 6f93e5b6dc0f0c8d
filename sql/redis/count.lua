-- Counts hits of one API key, where sql/redis/hit.lua cannot: while a cluster moves its slot, only a call on a single key is certain
-- to reach the node that has it.
--
-- KEYS[1]  rl:{<key id>}:<minute>
-- ARGV[1]  that minute, as the caller has it
-- ARGV[2]  hits to add
-- Answers  { seconds, microseconds, count }, without the count where it is another minute here: then nothing was counted

local now = redis.call('time')
if math.floor(tonumber(now[1]) / 60) ~= tonumber(ARGV[1]) then return { tonumber(now[1]), tonumber(now[2]) } end
local hits = tonumber(ARGV[2])
local count = redis.call('incrby', KEYS[1], hits)
-- Below zero is no number that this script has left, as in sql/redis/hit.lua.
if count < hits then
  redis.call('set', KEYS[1], hits)
  count = hits
end
redis.call('expire', KEYS[1], 120)
return { tonumber(now[1]), tonumber(now[2]), count }

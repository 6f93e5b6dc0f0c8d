-- Counts hits of one API key when sql/redis/hit.lua cannot: while a cluster moves a slot, only a
-- call on a single key is certain to reach the node that has it.
--
-- KEYS[1]  rl:{<key id>}:<minute>
-- ARGV[1]  that minute, by what the caller knows of this server's clock
-- ARGV[2]  hits to add
-- ARGV[3]  "anyway": count even if this node is in another minute, as a node has said it is this one
-- Returns  { seconds, microseconds, count }; no count if it is another minute here, and then
--          nothing was counted

local minute = tonumber(ARGV[1])
local now = redis.call('time')
if math.floor(tonumber(now[1]) / 60) ~= minute then
  if ARGV[3] ~= 'anyway' then return { tonumber(now[1]), tonumber(now[2]) } end
  -- As the minute turns, the clocks of two nodes differ. Here it is just before that minute, or just after.
  now = tonumber(now[1]) < minute * 60 and { minute * 60, 0 } or { minute * 60 + 59, 999999 }
end
local hits = tonumber(ARGV[2])
local count = redis.call('incrby', KEYS[1], hits)
-- The counter was below zero, which this script never leaves: start over, as in hit.lua.
if count < hits then
  redis.call('set', KEYS[1], hits)
  count = hits
end
redis.call('expire', KEYS[1], 120)
return { tonumber(now[1]), tonumber(now[2]), count }

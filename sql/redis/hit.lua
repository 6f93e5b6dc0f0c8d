-- Counts hits and returns the version of each key: one call for all API keys of an event-loop turn.
--
-- KEYS[i]  rl:{<key id>}:v  where the version of API key i is; its counter has the minute in place of the v
-- ARGV[i]  hits to add to API key i (0 only probes); none at all: one to each
-- ARGV[n+1]  given in a cluster, where a call has one API key: its counter is read before it is raised
-- Answers  { seconds, microseconds, count 1, version 1, count 2, version 2, ... }
--          count: after adding; version: 0 where none is known, -1 where it cannot be read
--
-- The minute is this server's, so every instance counts in the same window whatever its own clock says.

local now = redis.call('time')
local minute = string.format('%d', math.floor(tonumber(now[1]) / 60))

local function counterOf(name) return string.sub(name, 1, -2) .. minute end

-- Nobody needs what the counter was. But while a slot moves, version or counter may be at the other node, and a counter would
-- restart here: reading both fails then, before anything is counted (src/redis/scripts.ts).
local read = ARGV[#KEYS + 1] and { KEYS[1], counterOf(KEYS[1]) } or KEYS
local versions = redis.call('mget', unpack(read))
local answer = { tonumber(now[1]), tonumber(now[2]) }

-- What raise-version.lua writes is a positive integer; mget is silent about a value that is no string.
local function version(i)
  local text = versions[i]
  if not text then return redis.call('exists', KEYS[i]) == 0 and 0 or -1 end
  -- raise-version.lua has set an expiry. Without one somebody else wrote it, and it would stand for ever.
  -- 600 s: versionTtlS of src/redis/counter.ts.
  if redis.call('ttl', KEYS[i]) < 0 then redis.call('expire', KEYS[i], 600) end
  return #text < 11 and string.find(text, '^%d+$') and tonumber(text) or -1
end

for i, name in ipairs(KEYS) do
  local counter = counterOf(name)
  local hits = tonumber(ARGV[i] or 1)
  local count = redis.pcall('incrby', counter, hits)
  if type(count) == 'table' then
    -- Only a value that is no counter is replaced; a server that cannot write says so to the caller.
    local fault = count.err or ''
    if not (string.find(fault, 'WRONGTYPE') or string.find(fault, 'not an integer') or string.find(fault, 'overflow')) then
      return count
    end
    count = -1
  end
  -- Nor is a number below zero one that this script has left.
  if count < hits then
    redis.call('set', counter, hits)
    count = hits
  end
  -- Each time and not only at the first hit: a counter can never be left without an expiry. 120 s: the last full minute
  -- stays readable for dashboards.
  redis.call('expire', counter, 120)
  answer[#answer + 1] = count
  answer[#answer + 1] = version(i)
end

return answer

-- Counts hits and returns the version of each key: one call for all API keys of an event-loop turn.
--
-- KEYS[i]    rl:{<key id>}:v, the version of API key i; its counter has the minute in place of v
-- ARGV[i]    hits to add to API key i (0 only probes); without any, one hit for each
-- ARGV[n+1]  given in a cluster, where a call has one API key: read its counter before raising it
-- Returns    { seconds, microseconds, count 1, version 1, count 2, version 2, ... }
--            count: after adding; version: 0 if none is known, -1 if it cannot be read
--
-- The minute is this server's, so every instance counts in the same window whatever its own clock
-- says.

local now = redis.call('time')
local minute = string.format('%d', math.floor(tonumber(now[1]) / 60))

local function counterOf(name) return string.sub(name, 1, -2) .. minute end

-- The old count is not needed. But while a slot moves, the version or the counter may be on the
-- other node, and a counter would start over here. Reading both makes the script fail then, before
-- anything is counted (src/redis/scripts.ts).
local read = ARGV[#KEYS + 1] and { KEYS[1], counterOf(KEYS[1]) } or KEYS
local versions = redis.call('mget', unpack(read))
local answer = { tonumber(now[1]), tonumber(now[2]) }

-- raise-version.lua writes a positive integer. mget returns nothing for a value that is not a
-- string.
local function version(i)
  local text = versions[i]
  if not text then return redis.call('exists', KEYS[i]) == 0 and 0 or -1 end
  -- raise-version.lua sets an expiry. A version without one was written by something else, and
  -- would stay forever. 600 s: versionTtlS in src/redis/counter.ts.
  if redis.call('ttl', KEYS[i]) < 0 then redis.call('expire', KEYS[i], 600) end
  return #text < 11 and string.find(text, '^%d+$') and tonumber(text) or -1
end

for i, name in ipairs(KEYS) do
  local counter = counterOf(name)
  local hits = tonumber(ARGV[i] or 1)
  local count = redis.pcall('incrby', counter, hits)
  if type(count) == 'table' then
    -- Replace only a value that is not a counter. The error of a server that cannot write goes to
    -- the caller.
    local fault = count.err or ''
    if not (string.find(fault, 'WRONGTYPE') or string.find(fault, 'not an integer') or string.find(fault, 'overflow')) then
      return count
    end
    count = -1
  end
  -- The counter was below zero, which this script never leaves, or was not a counter: start over.
  if count < hits then
    redis.call('set', counter, hits)
    count = hits
  end
  -- Every time and not only at the first hit, so that a counter is never left without an expiry.
  -- 120 s: the last full minute stays readable for dashboards.
  redis.call('expire', counter, 120)
  answer[#answer + 1] = count
  answer[#answer + 1] = version(i)
end

return answer

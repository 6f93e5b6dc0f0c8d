-- Counts hits and returns the version of each key: one call for all API keys of an event-loop turn.
--
-- KEYS[i]    rl:{<key id>}:v, the version of API key i; its counter has the minute in place of v
-- ARGV[1]    the last minute in which to count
-- ARGV[i+1]  hits to add to API key i; without any, one hit for each
-- ARGV[n+2]  given in a cluster, where a call has one API key: read its counter before raising it
-- Returns    one string. First little-endian doubles: seconds, microseconds, count 1, version 1,
--            count 2, version 2, ... Then the leases, with spaces between them.
--            count: after adding; version: if it is confirmed, else 0, and the next lease is the
--            key's. Seconds and microseconds alone: it is a later minute, and nothing was counted
--
-- A confirmed version is at least that of every change answered so far. A lease is "<at
-- least>?<token>": an instance must read the key from Postgres after seeing the lease, and may then
-- confirm what was read (sql/redis/confirm-version.lua) if the lease is still here. A key without a
-- version gets a lease, so a Redis that has lost its data confirms nothing.
--
-- The minute is this server's, so every instance counts in the same window whatever its own clock
-- says. A call that runs after its minute has waited in a server that stood still. The instance
-- has counted its hits by itself meanwhile, so counted here they would use up a later minute.
--
-- Most of the time goes into commands and into converting values. So there is one command for each
-- key, their arguments are strings already, and the reply is one string instead of a list.

local call, pcall, sub = redis.call, redis.pcall, string.sub
local now = call('time')
local minute = math.floor(tonumber(now[1]) / 60)
if minute > tonumber(ARGV[1]) then return struct.pack('<dd', now[1], now[2]) end
minute = string.format('%d', minute)

local function counterOf(name) return sub(name, 1, -2) .. minute end

-- The old count is not needed. But while a slot moves, the version or the counter may be on the
-- other node, and a counter would start over here. Reading both makes the script fail then, before
-- anything is counted (src/redis/scripts.ts).
local read = ARGV[#KEYS + 2] and { KEYS[1], counterOf(KEYS[1]) } or KEYS
local versions = call('mget', unpack(read))

-- A number if it confirms, a string if it is a lease; nil if absent or written by something else.
local function parse(text)
  if not text then return nil end
  if #text < 11 and string.find(text, '^[1-9]%d*$') then return tonumber(text) end
  if #text < 40 and string.find(text, '^%d+%?[%d.]+$') then return text end
end
-- Many keys have the same version.
local parsed = {}

local answer = { now[1], now[2] }
local leases = {}

for i, name in ipairs(KEYS) do
  local counter = counterOf(name)
  local hits = tonumber(ARGV[i + 1] or 1)
  local count = pcall('incrby', counter, ARGV[i + 1] or '1')
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
    call('set', counter, hits)
    count = hits
  end

  local text = versions[i]
  local version = parsed[text] or parse(text)
  if version then parsed[text] = version end

  -- A script runs as a whole, so a counter that it creates has an expiry. Every eighth hit sets it
  -- again, in case someone has removed it.
  -- 120 s: the last full minute stays readable for dashboards.
  -- 600 s: versionTtlS in src/redis/scripts.ts. Renewed once a minute, but a lease is not: it ends
  -- if Postgres has lost the version that it demands.
  if count == hits then
    call('expire', counter, '120')
    if type(version) == 'number' then call('expire', name, '600') end
  elseif count % 8 < hits then
    call('expire', counter, '120')
  end

  if not version then
    -- A token is used once: this server's microsecond.
    version = '0?' .. now[1] .. '.' .. now[2]
    call('set', name, version, 'ex', '600')
  end
  if type(version) == 'string' then
    leases[#leases + 1] = version
    version = 0
  end
  answer[2 * i + 1] = count
  answer[2 * i + 2] = version
end

return struct.pack('<' .. string.rep('d', #answer), unpack(answer)) .. table.concat(leases, ' ')

-- Finds the counters of a minute and reads them, one slice of SCAN at a time. Reading them here
-- spares the caller their names: it looks for high counts, and almost all are low.
--
-- The script finds its keys itself, on the server that has them. In a cluster, a counter whose slot
-- is moving may be found on one node and read on another.
--
-- ARGV[1]  cursor
-- ARGV[2]  minute
-- ARGV[3]  names to look at
-- ARGV[4]  counts up to this are read but not returned
-- Returns  { next cursor, counters read, 'id count id count …', ids whose counter this server
--          refused to read }

local slice = redis.call('scan', ARGV[1], 'MATCH', 'rl:{apk_*}:' .. ARGV[2], 'COUNT', ARGV[3])
local above = tonumber(ARGV[4])
local read, counts, refused = 0, {}, {}
for _, name in ipairs(slice[2]) do
  local id = string.match(name, '^rl:{(apk_[0-9A-Za-z]+)}:')
  local value = id and #id <= 104 and redis.pcall('get', name)
  if type(value) == 'table' then
    refused[#refused + 1] = id
  elseif value and #value <= 15 and string.find(value, '^%d+$') then
    read = read + 1
    if tonumber(value) > above then
      counts[#counts + 1] = id
      counts[#counts + 1] = value
    end
  end
end
return { slice[1], read, table.concat(counts, ' '), refused }

-- What wrk sends, and what it reports at the end.
--
-- Arguments  file of tokens or calls (see load.ts), how many lines to skip, how many to use in turn
-- Prints     one line of JSON: requests, microseconds, errors, answers other than 2xx or 3xx, and latencies in
--            microseconds, which wrk has corrected for coordinated omission by then

local function call_of(line)
  local method, path, token, body = line:match('^(%u+) (%S+) (%S+) ?(.*)$')
  if method == nil then method, path, token, body = 'GET', wrk.path, line, '' end
  local request = method .. ' ' .. path .. ' HTTP/1.1\r\nHost: ' .. wrk.host .. '\r\nAuthorization: Bearer ' .. token
  if body == '' then return request .. '\r\n\r\n' end
  return request .. '\r\nContent-Type: application/json\r\nContent-Length: ' .. #body .. '\r\n\r\n' .. body
end

function init(args)
  local file, skip, count = io.open(args[1], 'r'), tonumber(args[2]), tonumber(args[3])
  local length = #file:read('*l') + 1
  file:seek('set', skip * length)

  if count == 1 then
    -- A constant request: wrk then calls no Lua for it.
    wrk.headers['Authorization'] = 'Bearer ' .. file:read('*l')
    return
  end

  local calls = {}
  for i = 1, count do calls[i] = call_of(file:read('*l')) end
  local next = 0
  function request()
    next = next % count + 1
    return calls[next]
  end
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"requests":%d,"us":%d,"failed":%d,"notOk":%d,"p50Us":%d,"p99Us":%d}',
    summary.requests, summary.duration, errors.connect + errors.read + errors.write + errors.timeout, errors.status,
    latency:percentile(50), latency:percentile(99)
  ))
end

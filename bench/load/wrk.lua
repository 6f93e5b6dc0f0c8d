-- What wrk sends, and what it reports at the end.
--
-- Arguments  file of tokens (one per line, all of the same length), how many to skip, how many to use in turn
-- Prints     one line of JSON: requests, microseconds, errors, answers other than 2xx or 3xx, latencies in microseconds

function init(args)
  local file, skip, count = io.open(args[1], 'r'), tonumber(args[2]), tonumber(args[3])
  local length = #file:read('*l') + 1
  file:seek('set', skip * length)

  if count == 1 then
    -- A constant request: wrk then calls no Lua for it.
    wrk.headers['Authorization'] = 'Bearer ' .. file:read('*l')
    return
  end

  local tokens = {}
  for i = 1, count do tokens[i] = file:read('*l') end
  local before = 'GET ' .. wrk.path .. ' HTTP/1.1\r\nHost: ' .. wrk.host .. '\r\nAuthorization: Bearer '
  local next = 0
  function request()
    next = next % count + 1
    return before .. tokens[next] .. '\r\n\r\n'
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

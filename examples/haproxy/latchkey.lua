-- An action for `http-request lua.latchkey`: asks Latchkey about the request. Goes on with x-key-id
-- and x-user-id if the key is good; otherwise answers with Latchkey's own response.
-- Needs HAProxy 2.6 or later, and no package.

-- The `listen latchkey` of haproxy.cfg.
local latchkey = 'http://127.0.0.1:3080/v1/verify'
-- More than it takes there to try every instance.
local timeout_ms = 8000

local passed_on = { 'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset' }

local unavailable = '{"error":{"type":"api_error","code":"service_unavailable",'
  .. '"message":"The service cannot process the request right now.","param":"",'
  .. '"docs_url":"http://localhost:3000/docs/errors/service_unavailable","request_id":"%s",'
  .. '"suggestion":"Try again after the number of seconds in Retry-After."}}'

-- The response as HAProxy has it: of each header, a list that begins with 0.
local function refuse(txn, status, headers, body)
  local reply = txn:reply({ status = status, body = body })
  for name, values in pairs(headers) do
    -- Those of the connection between HAProxy and Latchkey end here.
    if name ~= 'connection' and name ~= 'keep-alive' and name ~= 'transfer-encoding' and name ~= 'content-length' then
      for _, value in pairs(values) do reply:add_header(name, value) end
    end
  end
  txn:done(reply)
end

local function ask(txn)
  local from = txn.http:req_get_headers()
  -- `OPTIONS *` has no path.
  local path = txn.sf:pathq()
  if path == '' then path = txn.sf:url() end
  local to = {
    ['x-forwarded-for'] = { txn.sf:src() },
    ['x-forwarded-method'] = { txn.sf:method() },
    ['x-forwarded-uri'] = { path },
    -- Without one, HAProxy would send its own.
    ['user-agent'] = { from['user-agent'] and from['user-agent'][0] or '' },
  }
  if from['authorization'] then
    to['authorization'] = {}
    for _, value in pairs(from['authorization']) do table.insert(to['authorization'], value) end
  end
  return core.httpclient():get({ url = latchkey, headers = to, timeout = timeout_ms })
end

core.register_action('latchkey', { 'http-req' }, function(txn)
  local asked, answer = pcall(ask, txn)
  local headers = asked and answer.headers or {}
  local is_json = headers['content-type'] and headers['content-type'][0]:find('^application/json')
  if not is_json then
    -- No instance answers: nobody gets in.
    local more = {
      ['content-type'] = { 'application/json' },
      ['retry-after'] = { '1' },
      ['cache-control'] = { 'no-store' },
    }
    return refuse(txn, 503, more, unavailable:format(txn.sf:uuid()))
  end
  if answer.status ~= 200 then return refuse(txn, answer.status, headers, answer.body) end
  txn.http:req_set_header('x-key-id', headers['x-key-id'][0])
  txn.http:req_set_header('x-user-id', headers['x-user-id'][0])
  for _, name in ipairs(passed_on) do
    txn:set_var('txn.' .. name:gsub('-', '_'), headers[name][0])
  end
end)

// What the service writes about requests: JSON lines, one for each at debug level, and never a secret.
import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { type Env, externalEnv, serveLatchkey } from './latchkey.ts'
import { until } from './until.ts'

async function begin(t: Test, env: Env = {}) {
  const services = await useServices(t)
  const instance = await startInstance(t, services)
  const { token } = await makeCaller(instance)
  await instance.close()
  return { token, service: await serveLatchkey(t, externalEnv(services, env)) }
}

/** The parser refuses it. */
async function sendMalformed(port: number, token: string) {
  const socket = connect(port, '127.0.0.1')
  socket.write(`GET /v1/verify HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nno header\r\n\r\n`)
  const [answer] = await once(socket, 'data')
  socket.destroy()
  return String(answer)
}

t.test('at debug level the log has a JSON line for each request, with its id and status', async (t) => {
  const { token, service } = await begin(t, { LOG_LEVEL: 'debug' })
  const answers = [
    await ask(`GET ${service.url}/v1/verify`, { token }),
    await ask(`POST ${service.url}/v1/keys`, { token, json: { name: 'x' } }),
    await ask(`POST ${service.url}/v1/keys`, { token, json: {} }),
    await ask(`GET ${service.url}/v1/keys/apk_absent`, { token }),
    await ask(`GET ${service.url}/v1/verify`),
    await ask(`GET ${service.url}/docs/errors/unauthorized`),
  ]
  t.same(
    answers.map(({ status }) => status),
    [200, 201, 400, 404, 401, 200],
  )
  for (const { status, headers } of answers) {
    const requestId = headers.get('x-request-id')
    const line = await until('the request is in the log', () =>
      service.log.find((line) => line.request_id === requestId && line.ms !== undefined),
    )
    t.equal(line.status, status)
  }
  service.kill('SIGTERM')
  const { stdout, stderr } = await service.ended
  t.equal(stderr, '')
  for (const line of stdout.trimEnd().split('\n')) t.doesNotThrow(() => JSON.parse(line), line)
})

t.test('at the default level an admitted request is not logged', async (t) => {
  const { token, service } = await begin(t)
  const { status, headers } = await ask(`GET ${service.url}/v1/verify`, { token })
  t.equal(status, 200)
  service.kill('SIGTERM')
  t.notMatch((await service.ended).stdout, headers.get('x-request-id')!)
})

t.test('wherever a client puts a token, neither the log nor an error shows it', async (t) => {
  const { token, service } = await begin(t, { LOG_LEVEL: 'trace' })
  const { url } = service
  const unknown = `${token.slice(0, -1)}${token.endsWith('0') ? '1' : '0'}`
  const minted = await ask(`POST ${url}/v1/keys`, { token, json: { name: 'x' } })
  const json = { 'content-type': 'application/json' }
  const errors: Record<string, Awaited<ReturnType<typeof ask>>> = {
    'an unknown one as it should be': await ask(`GET ${url}/v1/verify`, { token: unknown }),
    'by another scheme': await ask(`GET ${url}/v1/verify`, { headers: { authorization: `Basic ${token}` } }),
    'as id': await ask(`GET ${url}/v1/keys/${token}`, { token }),
    'as cursor': await ask(`GET ${url}/v1/keys?starting_after=${token}`, { token }),
    'as status filter': await ask(`GET ${url}/v1/keys?status=${token}`, { token }),
    'as name of a query parameter': await ask(`GET ${url}/v1/keys?${token}=1`, { token }),
    'as unknown path': await ask(`GET ${url}/${token}`, { token }),
    'as user agent': await ask(`GET ${url}/v1/none`, { token, headers: { 'user-agent': token } }),
    'as value of a member': await ask(`POST ${url}/v1/keys`, { token, json: { rate_limit_rpm: token } }),
    'as name of a member': await ask(`POST ${url}/v1/keys`, { token, json: { name: 'x', [token]: 1 } }),
    'in broken JSON': await ask(`POST ${url}/v1/keys`, { token, headers: json, body: `{"name": ${token}` }),
    'as media type': await ask(`POST ${url}/v1/keys`, {
      token,
      headers: { 'content-type': token },
      body: 'x',
    }),
  }
  const malformed = await sendMalformed(service.port, token)
  t.match(malformed, /^HTTP\/1\.1 400 /)
  t.notOk(malformed.includes(token))
  service.kill('SIGTERM')
  const { stdout } = await service.ended
  const lines = stdout.trimEnd().split('\n')

  for (const [where, { status, text, headers }] of Object.entries(errors)) {
    t.ok(status >= 400, `${where}: ${status}`)
    t.notMatch(text, token, `${where}: not in the error`)
    const about = lines.filter((line) => line.includes(headers.get('x-request-id')!))
    t.ok(about.length > 0, `${where}: it is in the log`)
    for (const line of about)
      t.notOk(line.includes(token) || line.includes(unknown), `${where}: not in the log`)
  }
  for (const secret of [token, unknown, minted.body.plain_key]) {
    const naming = lines.filter((line) => line.includes(secret)).map((line) => JSON.parse(line).code)
    t.same(naming, [], 'no log line contains it')
  }
  t.notMatch(stdout, /bearer/i)
})

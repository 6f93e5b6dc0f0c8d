// A key exists once, in the response that creates it: never in another response, Postgres, Redis,
// the log or the metrics.
import { createHmac } from 'node:crypto'
import t, { type Test } from 'tap'
import { hashSecret, type Instance, makeCaller, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { sendRaw } from './raw-http.ts'

const services = await useServices(t)
const instance = await startInstance(t, services, { LOG_LEVEL: 'trace' })
const sql = openDatabase(t, services.databaseUrl)
const redis = services.connectRedis()
const { id: adminId, token: admin } = await makeCaller(instance)

async function mint(): Promise<{ id: string; secret: string }> {
  const { body } = await instance.ask('POST', '/v1/keys', { token: admin, json: { name: 'secretive' } })
  return { id: body.id, secret: body.plain_key }
}

/** Every row of every table, as text; bytes are in it as hex. */
async function dumpPostgres(): Promise<string> {
  const tables = await sql`
    select format('%I.%I', schemaname, tablename) as name from pg_tables
    where schemaname not in ('pg_catalog', 'information_schema')`
  const rows = await Promise.all(
    tables.map(({ name }) => sql.unsafe(`select to_jsonb(r)::text as row from ${name} r`)),
  )
  return rows
    .flat()
    .map(({ row }) => row)
    .join('\n')
}

async function dumpRedis(): Promise<string> {
  const names = await redis.keys('*')
  return JSON.stringify([names, names.length > 0 ? await redis.mget(names) : []])
}

const places: Record<string, () => Promise<string>> = {
  'the rows of Postgres': dumpPostgres,
  Redis: dumpRedis,
  'the log': async () => JSON.stringify(instance.log),
  'the metrics': () => instance.service.metrics.registry.metrics(),
}

/** What follows the public key_prefix, as text and as bytes are written. */
async function expectNowhere(t: Test, secret: string) {
  const rest = secret.slice(10)
  for (const [place, dump] of Object.entries(places)) {
    const text = await dump()
    t.ok(text.includes(place === 'the metrics' ? 'latchkey_' : adminId), `${place} was read`)
    for (const form of [rest, Buffer.from(rest).toString('hex'), Buffer.from(secret).toString('base64')]) {
      t.notOk(text.includes(form), `not in ${place}`)
    }
  }
}

/** Everything a key can do and every way to misuse it, ending with its revocation. */
async function live({ ask, port }: Instance, id: string, token: string) {
  const raw = (...headers: string[]) => sendRaw(port, 'GET', '/v1/verify', headers)
  const authorization = `Authorization: Bearer ${token}`
  const headers = { 'content-type': 'application/json' }
  const agent = { 'user-agent': `client/1.0 ${token}` }
  return [
    await ask('GET', '/v1/verify', { token }),
    await ask('GET', '/v1/keys', { token }),
    await ask('GET', `/v1/keys/${id}`, { token }),
    await ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 'renamed' }, headers: agent }),
    await ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 5 } }),
    await ask('POST', '/v1/keys', { token, headers, body: `{"name":"${token}` }),
    await ask('POST', '/v1/keys', { token, json: { name: 'x', rate_limit_rpm: token } }),
    await ask('PUT', '/v1/keys', { token }),
    await raw(authorization, 'X-A: a\0b'),
    await raw(authorization, authorization),
    await raw(`Authorization: Token ${token}`),
    await raw(`Authorization: Bearer "${token}"`),
    await raw(`Authorization: Bearer ${token}x`),
    await raw(`User-Agent: client/1.0 ${token}`),
    await raw(`User-Agent: client/1.0 ${token}`, `Authorization: Bearer ${admin}`),
    ...(await inUrls(token)),
    await ask('DELETE', `/v1/keys/${id}`, { token }),
    await ask('GET', '/v1/verify', { token }),
    await ask('GET', '/v1/keys', { token: admin }),
    await ask('GET', `/v1/keys/${id}`, { token: admin }),
    await ask('PATCH', `/v1/keys/${id}`, { token: admin, json: { name: 'x' } }),
    await ask('DELETE', `/v1/keys/${id}`, { token: admin }),
  ]
}

/** As a client may send it by mistake, with a key and without. */
async function inUrls(secret: string) {
  const answers = []
  for (const path of [`keys/${secret}`, `keys?api_key=${secret}`, `keys?starting_after=${secret}`, secret]) {
    for (const ask of [{}, { token: admin }]) answers.push(await instance.ask('GET', `/v1/${path}`, ask))
  }
  return answers
}

t.test('after a whole life of use and misuse, the key is stored and logged nowhere', async (t) => {
  const { id, secret } = await mint()
  const answers = await live(instance, id, secret)
  for (const { status, headers, text } of answers) {
    const all = `${JSON.stringify([...headers])}${text}`
    t.notOk(all.includes('plain_key') || all.includes(secret.slice(10)), `not in a response of ${status}`)
  }
  t.ok(
    answers.some(({ text }) => text.includes(secret.slice(0, 10))),
    'its prefix is',
  )
  t.ok(instance.log.length > 10, 'the log is at level trace')
  await expectNowhere(t, secret)
})

t.test('a user agent is stored without the key in it', async (t) => {
  const headers = { 'user-agent': `client/1.0 ${(await mint()).secret}` }
  const { body } = await instance.ask('GET', '/v1/verify', { headers })
  const [entry] = await instance.service.stores.audit.find(body.error.request_id)
  t.equal(entry!.user_agent, 'client/1.0 lk_[redacted]')
})

t.test('HASH_SECRET is left nowhere either', async (t) => {
  await mint()
  await expectNowhere(t, `0123456789${hashSecret}`)
})

t.test('Postgres stores the HMAC-SHA256 of a key under HASH_SECRET', async (t) => {
  const { id, secret } = await mint()
  const [row] = await sql`select encode(key_hash, 'hex') as hash from api_keys where id = ${id}`
  t.equal(row!.hash, createHmac('sha256', hashSecret).update(secret).digest('hex'))
})

// The secret exists once, in the answer to its creation. Looked for everywhere else: answers, Postgres, Redis, log, metrics.
import { createHmac } from 'node:crypto'
import t, { type Test } from 'tap'
import { hashSecret, type Instance, makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
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

/** What follows the public key_prefix is looked for too, as it is and as bytes are written. */
async function expectNowhere(t: Test, secret: string) {
  const rest = secret.slice(10)
  for (const [place, dump] of Object.entries(places)) {
    const text = await dump()
    t.ok(text.includes(place === 'the metrics' ? 'latchkey_' : adminId), `${place}: really read`)
    for (const form of [rest, Buffer.from(rest).toString('hex'), Buffer.from(secret).toString('base64')]) {
      t.notOk(text.includes(form), `not in ${place}`)
    }
  }
}

/** Everything a key can do, ending with its revocation. */
async function live({ ask, port }: Instance, id: string, token: string) {
  const authorization = `Authorization: Bearer ${token}`
  return [
    await ask('GET', '/v1/verify', { token }),
    await ask('GET', '/v1/keys', { token }),
    await ask('GET', `/v1/keys/${id}`, { token }),
    await ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 'renamed' } }),
    await ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 5 } }),
    await ask('POST', '/v1/keys', {
      token,
      headers: { 'content-type': 'application/json' },
      body: `{"name":"${token}`,
    }),
    await ask('POST', '/v1/keys', { token, json: { name: 'x', rate_limit_rpm: token } }),
    await ask('GET', '/nope', { token }),
    await ask('PUT', '/v1/keys', { token }),
    await sendRaw(port, 'GET', '/v1/verify', [authorization, 'X-A: a\0b']),
    await sendRaw(port, 'GET', '/v1/verify', [authorization, authorization]),
    await sendRaw(port, 'GET', '/v1/verify', [`Authorization: Token ${token}`]),
    await sendRaw(port, 'GET', '/v1/verify', [`Authorization: Bearer "${token}"`]),
    await sendRaw(port, 'GET', '/v1/verify', [`Authorization: Bearer ${token}x`]),
    await ask('DELETE', `/v1/keys/${id}`, { token }),
    await ask('GET', '/v1/verify', { token }),
  ]
}

t.test('the creation answers with the secret, and nothing that follows does', async (t) => {
  const { id, secret } = await mint()
  const answers = await live(instance, id, secret)
  answers.push(await instance.ask('GET', '/v1/keys', { token: admin }))
  answers.push(await instance.ask('GET', `/v1/keys/${id}`, { token: admin }))
  answers.push(await instance.ask('PATCH', `/v1/keys/${id}`, { token: admin, json: { name: 'x' } }))
  answers.push(await instance.ask('DELETE', `/v1/keys/${id}`, { token: admin }))
  for (const { status, headers, text } of answers) {
    const all = `${JSON.stringify([...headers])}${text}`
    t.notOk(all.includes('plain_key') || all.includes(secret.slice(10)), `not in an answer of ${status}`)
  }
  t.ok(
    answers.some(({ text }) => text.includes(secret.slice(0, 10))),
    'its prefix is',
  )
})

t.test('a key that lived a whole life left its secret nowhere', async (t) => {
  const { id, secret } = await mint()
  await live(instance, id, secret)
  t.ok(instance.log.length > 10, 'the log is that of level trace')
  await expectNowhere(t, secret)
})

t.test('a secret sent in a URL by mistake is left nowhere', async (t) => {
  const { secret } = await mint()
  for (const ask of [{}, { token: admin }]) {
    for (const path of [
      `/v1/keys/${secret}`,
      `/v1/keys?api_key=${secret}`,
      `/v1/keys?starting_after=${secret}`,
      `/${secret}`,
    ]) {
      const answer = await instance.ask('GET', path, ask)
      t.notOk(answer.text.includes(secret.slice(10)), `not in the answer to ${path.slice(0, 20)}…`)
    }
  }
  await expectNowhere(t, secret)
})

t.test(
  'a secret sent as the name of the client is left nowhere, neither by a refusal nor by a change',
  async (t) => {
    const { id, secret } = await mint()
    const headers = { 'user-agent': `client/1.0 ${secret}` }
    const refused = await instance.ask('GET', '/v1/verify', { headers })
    t.equal(refused.status, 401)
    const json = { name: 'renamed' }
    t.equal((await instance.ask('PATCH', `/v1/keys/${id}`, { token: admin, json, headers })).status, 200)
    await expectNowhere(t, secret)
    const [entry] = await instance.service.stores.audit.find(refused.body.error.request_id)
    t.match(entry!.user_agent, /^client\/1\.0 /, 'what else it said is there')
  },
)

t.test('the secret of the hashes is left nowhere either', async (t) => {
  await mint()
  await expectNowhere(t, `0123456789${hashSecret}`)
})

t.test('Postgres keeps of a key its HMAC-SHA256 under HASH_SECRET', async (t) => {
  const { id, secret } = await mint()
  const [row] = await sql`select encode(key_hash, 'hex') as hash from api_keys where id = ${id}`
  t.equal(row!.hash, createHmac('sha256', hashSecret).update(secret).digest('hex'))
})

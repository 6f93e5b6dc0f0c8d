// GitHub's reports of leaked keys: only those that it has signed count, and then the keys are
// revoked everywhere.
import { once } from 'node:events'
import { rename, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { expectError } from '../api/expect-error.ts'
import { type Ask, makeCaller, startInstance, startOps } from '../instance.ts'
import { aFolder } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis } from '../services/index.ts'
import { ada, startAdmin, verify } from './admin.ts'
import { answered, makeSigner, match, published, type Signer, signedBy } from './github.ts'

const path = '/admin/keys/scan/github'
const [former, current, stranger] = [makeSigner(), makeSigner(), makeSigner()]
const keysFile = join(await aFolder(t), 'github-keys.json')
/** In one step, as a reader may come at any moment. */
async function publish(text: string) {
  await writeFile(`${keysFile}.new`, text)
  await rename(`${keysFile}.new`, keysFile)
}
await publish(published(former, current))

const { services, instance, ops, sql, admin, entriesOf, keysInEachState, startOther } = await startAdmin(t, {
  GITHUB_SCANNING_KEYS_FILE: keysFile,
  LOG_LEVEL: 'trace',
})
const other = await startOther()
const { mint } = instance.service.stores.tokenFormat

/** Without an operator token. */
const send = (body: string | Uint8Array, signer: Signer = current, more: Record<string, string> = {}) =>
  ops.ask('POST', path, { body, headers: { ...signedBy(signer, body), ...more } })
const report = (matches: unknown, signer?: Signer) => send(JSON.stringify(matches), signer)

/** The log has one line a second about 503s. */
const refusedBecause = (cause: RegExp) =>
  until(`a report is a 503, logged as ${cause}`, async () => {
    const { status } = await report([])
    return status === 503 && instance.log.some(({ level, reason }) => level === 40 && cause.test(`${reason}`))
  })

const unsigned = 'github-public-key-signature'

/** A refusal that was recorded for this reason; the answers do not tell the reasons apart. */
async function expectRefused(t: Test, ask: Ask, reason: string) {
  const answer = await ops.ask('POST', path, ask)
  expectError(t, answer, 'operator_unauthorized', unsigned)
  t.match(answer.body.error, { message: 'The signature is missing or invalid.' })
  t.match(
    [...(await entriesOf(answer))],
    [{ event: 'operator.refused', reason, path, actor: null, details: null }],
  )
}

t.test('the keys of a report are revoked on every instance when the answer comes', async (t) => {
  const leaked = await Promise.all(Array.from({ length: 40 }, () => makeCaller(instance)))
  for (const { token } of leaked) t.equal(await verify(other, token), 200)
  const answer = await report(leaked.map(({ token }) => match(token)))
  for (const { token } of leaked) t.equal(await verify(other, token), 401)
  t.equal(answer.status, 200)
  t.strictSame(
    answer.body,
    leaked.map(({ token }) => answered(token, 'true_positive')),
  )
  const entries = [...(await entriesOf(answer))]
  t.same(new Set(entries.map(({ key_id }) => key_id)), new Set(leaked.map(({ id }) => id)))
  const { url, source } = match('')
  for (const entry of entries)
    t.match(entry, {
      ...{ event: 'key.revoked', actor: 'partner:github', path, ip: '127.0.0.1' },
      details: { url, source },
    })
  const { body } = await admin('GET', `audit?event=key.revoked&key_id=${leaked[0]!.id}`)
  t.match(body.data, [{ actor: 'partner:github', details: { url, source } }])
})

t.test('with Redis down, they are revoked on every instance when the answer comes, too', async (t) => {
  const redis = await startPrivateRedis(t)
  if (redis === null) return
  const env = { GITHUB_SCANNING_KEYS_FILE: keysFile, OPS_TOKEN: `ada:${ada}`, KEY_CACHE_SECONDS: '1' }
  const start = () => startInstance(t, { ...services, redisUrl: redis.url }, env)
  const [one, two] = [await start(), await start()]
  const { ask } = await startOps(t, one)
  const leaked = await Promise.all(Array.from({ length: 40 }, () => makeCaller(one)))
  for (const { token } of leaked) t.equal(await verify(two, token), 200)
  await redis.kill()
  const body = JSON.stringify(leaked.map(({ token }) => match(token)))
  // A busy machine may take too long for one answer, which then says so.
  const answer = await until('the report is not a 503', async () => {
    const answer = await ask('POST', path, { body, headers: signedBy(current, body) })
    return answer.status !== 503 && answer
  })
  for (const { token } of leaked) t.equal(await verify(two, token), 401)
  t.equal(answer.status, 200)
})

t.test('what is or was a key is a true positive, and anything else a false one', async (t) => {
  const { active, revoked, expired, ownerless } = await keysInEachState()
  const known = [active, revoked, expired, ownerless, active].map(({ token }) => token)
  const strange = [mint(), `${active.token.slice(0, -1)}!`, '', 'lk_', 'é\0', 'x'.repeat(100_000)]
  const around = [`"${active.token}"`, `${active.token}0`, `key=${active.token};`]
  const { status, body } = await report([...known, ...strange, ...around].map((token) => match(token)))
  t.equal(status, 200)
  t.strictSame(body, [
    ...known.map((token) => answered(token, 'true_positive')),
    ...strange.map((token) => answered(token, 'false_positive')),
    ...around.map((token) => answered(token, 'true_positive')),
  ])
  t.equal(await verify(other, active.token), 401)
  t.strictSame((await report([])).body, [])
})

t.test("the samples of GitHub's documentation are accepted", async (t) => {
  const samples = [
    {
      identifier: 'bcb53661c06b4728e59d897fb6165d5c9cda0fd9cdf9d09ead458168deb7518c',
      key: 'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYAGMWO8XgCamYKMJS6jc/qgvSlAd\nAjPuDPRcXU22YxgBrz+zoN19MzuRyW87qEt9/AmtoNP5GrobzUvQSyJFVw==',
      signature:
        'MEQCIQDaMKqrGnE27S0kgMrEK0eYBmyG0LeZismAEz/BgZyt7AIfXt9fErtRS4XaeSt/AO1RtBY66YcAdjxji410VQV4xg==',
      body: '[{"source":"commit","token":"some_token","type":"some_type","url":"https://example.com/base-repo-url/"}]',
    },
    {
      identifier: 'f9525bf080f75b3506ca1ead061add62b8633a346606dc5fe544e29231c6ee0d',
      key: 'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEsz9ugWDj5jK5ELBK42ynytbo38gP\nHzZFI03Exwz8Lh/tCfL3YxwMdLjB+bMznsanlhK0RwcGP3IDb34kQDIo3Q==',
      signature:
        'MEUCIFLZzeK++IhS+y276SRk2Pe5LfDrfvTXu6iwKKcFGCrvAiEAhHN2kDOhy2I6eGkOFmxNkOJ+L2y8oQ9A2T9GGJo6WJY=',
      body: '[{"token":"some_token","type":"some_type","url":"some_url","source":"some_source"}]',
    },
  ]
  t.teardown(() => publish(published(former, current)))
  const pemOf = (key: string) => `-----BEGIN PUBLIC KEY-----\n${key}\n-----END PUBLIC KEY-----\n`
  await publish(published(...samples.map(({ identifier, key }) => ({ identifier, pem: pemOf(key) }))))
  for (const { identifier, signature, body } of samples) {
    const headers = {
      'content-type': 'application/json',
      'GITHUB-PUBLIC-KEY-IDENTIFIER': identifier,
      'GITHUB-PUBLIC-KEY-SIGNATURE': signature,
    }
    const answer = await ops.ask('POST', path, { body, headers })
    t.match(answer.body, [{ ...answered('some_token', 'false_positive'), token_type: 'some_type' }])
  }
})

t.test('a request that GitHub has not signed is refused and changes nothing', async (t) => {
  const { id, token } = await makeCaller(instance)
  const body = JSON.stringify([match(token)])
  const good = signedBy(current, body)
  const signature = good['github-public-key-signature']
  const without = (name: string) =>
    Object.fromEntries(Object.entries(good).filter(([header]) => header !== name))
  const of = (changed: string) => ({ ...good, 'github-public-key-signature': changed })
  const cases: [what: string, ask: Ask, reason: string][] = [
    ['no headers', { json: [match(token)] }, 'missing_signature'],
    ['an operator token', { json: [match(token)], token: ada }, 'missing_signature'],
    ['no body', {}, 'missing_signature'],
    ['no signature', { body, headers: without(unsigned) }, 'missing_signature'],
    ['no identifier', { body, headers: without('github-public-key-identifier') }, 'missing_signature'],
    ['a key that is not in the file', { body, headers: signedBy(stranger, body) }, 'unknown_signer'],
    [
      'no such key',
      { body, headers: signedBy({ ...current, identifier: '__proto__' }, body) },
      'unknown_signer',
    ],
    [
      'a key under the identifier of another',
      { body, headers: signedBy({ ...stranger, identifier: current.identifier }, body) },
      'wrong_signature',
    ],
    [
      'the identifier of the former key',
      { body, headers: { ...good, 'github-public-key-identifier': former.identifier } },
      'wrong_signature',
    ],
    ['one more space', { body: `${body} `, headers: good }, 'wrong_signature'],
    ['one less character', { body: body.slice(0, -1), headers: good }, 'wrong_signature'],
    ['the signature of another body', { body, headers: signedBy(current, '[]') }, 'wrong_signature'],
    ['an empty body', { body: '', headers: good }, 'wrong_signature'],
    ['an empty signature', { body, headers: of('') }, 'wrong_signature'],
    ['what is no signature', { body, headers: of('%%%') }, 'wrong_signature'],
    ['half a signature', { body, headers: of(signature.slice(0, 40)) }, 'wrong_signature'],
    ['a long signature', { body, headers: of('A'.repeat(8000)) }, 'wrong_signature'],
    ['a compressed body', { body: 'x', headers: { ...good, 'content-encoding': 'gzip' } }, 'wrong_signature'],
    ['no JSON', { body: '{', headers: { ...good, 'content-type': 'text/plain' } }, 'wrong_signature'],
  ]
  for (const [what, ask, reason] of cases) await t.test(what, (t) => expectRefused(t, ask, reason))
  t.equal(await verify(other, token), 200)
  t.match((await admin('GET', `keys/${id}`)).body, { revoked_at: null })
  t.equal((await send(body)).status, 200)
  t.equal(await verify(other, token), 401)
})

t.test('what GitHub has signed and is no report is refused like any body', async (t) => {
  const { token } = await makeCaller(instance)
  expectError(t, await send('not JSON'), 'invalid_json')
  expectError(t, await send(''), 'invalid_json')
  expectError(t, await send(Buffer.from([0x22, 0xff, 0x22])), 'invalid_json')
  expectError(t, await send('[{"token":"a","token":"b","type":"c"}]'), 'invalid_json', 'token')
  expectError(t, await report(match(token)), 'invalid_parameter')
  expectError(t, await report([match(token), null]), 'invalid_parameter', '1')
  expectError(t, await report([match(token), { token: 'x' }]), 'missing_parameter', '1.type')
  expectError(t, await report([{ ...match(token), token: 7 }]), 'invalid_parameter', '0.token')
  expectError(t, await send('[]', current, { 'content-type': 'text/plain' }), 'unsupported_media_type')
  expectError(t, await send('[]', current, { 'content-encoding': 'gzip' }), 'unsupported_media_type')
  t.equal(await verify(other, token), 200, 'and nothing of it is revoked')
  const { status } = await report([{ token, type: 'x', url: '', source: null, of_tomorrow: [1] }])
  t.equal(status, 200, 'what GitHub may leave out or add')
  t.equal(await verify(other, token), 401)
})

t.test('a megabyte is read whole, and more is too much', async (t) => {
  const { token } = await makeCaller(instance)
  const matches = [...Array.from({ length: 5000 }, () => mint()), token].map((one) => match(one, { url: '' }))
  const body = JSON.stringify(matches).padEnd(1_048_576)
  const { status, body: answer } = await send(body)
  t.equal(status, 200)
  t.strictSame(answer.at(-1), answered(token, 'true_positive'))
  t.equal(answer.filter(({ label }: { label: string }) => label === 'false_positive').length, 5000)
  t.equal(await verify(other, token), 401)
  expectError(t, await send(`${body} `), 'payload_too_large')
  const forged = await send(`${body} `, { ...stranger, identifier: current.identifier })
  expectError(t, forged, 'payload_too_large')
  const chunked = new ReadableStream({
    start(controller) {
      controller.enqueue(Buffer.from(`${body} `))
      controller.close()
    },
  })
  const streamed = await fetch(ops.url + path, {
    method: 'POST',
    body: chunked,
    duplex: 'half',
    headers: signedBy(current, `${body} `),
  } as RequestInit)
  t.equal(streamed.status, 413)
})

/** The head of a report, as bytes. */
function headOf(body: string) {
  const head = Object.entries(signedBy(current, body)).map(([name, value]) => `${name}: ${value}`)
  return `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n${head.join('\r\n')}\r\n\r\n`
}

t.test('bodies that nobody has verified yet take a bounded memory, and keep no report out', async (t) => {
  const sockets = Array.from({ length: 32 }, () => connect(ops.port, '127.0.0.1'))
  t.teardown(() => sockets.forEach((socket) => void socket.destroy()))
  let failed = 0
  const statuses = sockets.map(async (socket) => {
    const [data] = await once(socket, 'data')
    const status = String(data).slice(9, 12)
    if (status === '503') failed++
    return status
  })
  const [oldest, ...others] = sockets
  oldest!.write(`${headOf('[]')}[`)
  // By the time that this one is answered, the service reads that one.
  t.equal((await report([])).status, 200)
  for (const socket of others) socket.write(`${headOf('[]')}[`)
  await until('a report takes the place of the one that has taken longest', async () => {
    t.equal((await report([])).status, 200)
    return failed > 0
  })
  t.ok(instance.log.some(({ reason }) => reason === 'too many unverified reports at once'))
  for (const socket of sockets) socket.write(']')
  const answered = await Promise.all(statuses)
  t.equal(answered[0], '503')
  t.equal(answered.filter((status) => status === '200').length, 32 - failed, 'the others are answered')
  t.ok(failed < 16)
})

t.test('reports that are answered, or whose sender has gone, take no place of a slow one', async (t) => {
  const slow = connect(ops.port, '127.0.0.1')
  t.teardown(() => slow.destroy())
  slow.write(`${headOf('[]')}[`)
  for (let n = 0; n < 40; n++) t.equal((await report([])).status, 200)
  for (let n = 0; n < 40; n++) {
    const socket = connect(ops.port, '127.0.0.1').on('error', () => {})
    socket.end(`${headOf('[]')}[]`)
    await once(socket.resume(), 'close')
  }
  slow.write(']')
  t.match(String((await once(slow, 'data'))[0]), /^HTTP\/1.1 200 /)
})

t.test('a changed file counts at once, and a bad one is our fault', async (t) => {
  t.teardown(() => publish(published(former, current)))
  const next = makeSigner()
  t.equal((await report([], former)).status, 200)
  t.equal((await report([], next)).status, 401)
  await publish(published(current, next))
  t.equal((await report([], next)).status, 200)
  t.equal((await report([], former)).status, 401)
  const bad = ['', '{}', '[]', published(), published(makeSigner('P-384')), published(current).padEnd(65_537)]
  for (const text of bad) {
    await publish(text)
    expectError(t, await report([]), 'service_unavailable')
  }
  await refusedBecause(/^GITHUB_SCANNING_KEYS_FILE must /)
  t.notMatch(JSON.stringify(instance.log), keysFile)
  await publish(published(current).padEnd(65_536))
  t.equal((await report([])).status, 200)
})

t.test('an address has 60 refusals a minute, which lock out neither GitHub nor operators', async (t) => {
  const clock = { ms: Date.parse('2026-01-01T12:00:20Z') }
  const { ask } = await startOps(t, instance, { now: () => clock.ms })
  const wrong = async () => (await ask('POST', path, { json: [] })).status
  const statuses = await Promise.all(Array.from({ length: 61 }, wrong))
  t.strictSame(statuses.sort(), [...Array(60).fill(401), 429])
  const refused = await ask('POST', path, { json: [] })
  expectError(t, refused, 'rate_limit_exceeded')
  t.equal(refused.headers.get('retry-after'), '40')
  t.match(refused.body.error.suggestion, /the right signature\.$/)
  t.strictSame([...(await entriesOf(refused))], [])
  t.equal((await ask('POST', path, { body: '[]', headers: signedBy(current, '[]') })).status, 200)
  t.equal((await ask('GET', '/admin/users', { token: ada })).status, 200)
  for (let n = 0; n < 60; n++) await ask('GET', '/admin/users', { token: `${ada}x` })
  t.equal((await ask('GET', '/admin/users', { token: ada })).status, 429)
  t.equal((await ask('POST', path, { body: '[]', headers: signedBy(current, '[]') })).status, 200)
  clock.ms += 40_000
  t.equal(await wrong(), 401)
})

t.test('a refusal that cannot be recorded is a 503, and a failed revocation no success', async (t) => {
  const { token } = await makeCaller(instance)
  await sql`alter table audit_log rename to audit_log_elsewhere`
  t.teardown(() => sql`alter table if exists audit_log_elsewhere rename to audit_log`)
  expectError(t, await ops.ask('POST', path, { json: [] }), 'service_unavailable')
  expectError(t, await report([match(token)]), 'internal_error')
  t.equal(await verify(other, token), 200)
  await sql`alter table audit_log_elsewhere rename to audit_log`
  t.equal((await report([match(token)])).status, 200)
  t.equal(await verify(other, token), 401, 'GitHub may try again')
})

t.test('without the setting there is no such route', async (t) => {
  const without = await startOps(t, await startInstance(t, services, { OPS_TOKEN: ada }))
  const signed = { body: '[]', headers: signedBy(current, '[]') }
  expectError(t, await without.ask('POST', path, signed), 'operator_unauthorized')
  expectError(t, await without.ask('POST', path, { ...signed, token: ada }), 'route_not_found')
  const { body } = await without.ask('GET', '/admin/openapi.json', { token: ada })
  t.notOk(body.paths[path])
})

t.test('other methods of the path are for operators', async (t) => {
  expectError(t, await ops.ask('GET', path), 'operator_unauthorized')
  expectError(
    t,
    await ops.ask('PUT', path, { body: '[]', headers: signedBy(current, '[]') }),
    'operator_unauthorized',
  )
  expectError(t, await ops.ask('GET', path, { token: ada }), 'method_not_allowed')
})

t.test('where a key was found is stored safely, and no token is left anywhere', async (t) => {
  const { id, token } = await makeCaller(instance)
  const url = `https://github.com/${'é'.repeat(300)}?q=\ud800\0${token}`
  await report([
    match(token, { url: `https://github.com/${token}/\0\ud800`, source: `x${token}` }),
    match(token, { url }),
  ])
  const [{ details }] = (await admin('GET', `audit?event=key.revoked&key_id=${id}`)).body.data
  t.strictSame(details, { url: 'https://github.com/lk_[redacted]/%00%EF%BF%BD' })
  const second = await makeCaller(instance)
  await report([match(second.token, { url, source: 'Issue_comment' })])
  const [entry] = (await admin('GET', `audit?event=key.revoked&key_id=${second.id}`)).body.data
  t.equal(entry.details.source, 'Issue_comment')
  t.equal(entry.details.url.length, 512)
  await send(`[{"token":"${token}`)
  await report([{ [token]: token, token: 1, type: token }])
  await ops.ask('POST', `${path}?x=${token}`, { json: [match(token)] })
  t.ok(instance.log.length > 0)
  t.notMatch(JSON.stringify(instance.log), token.slice(10))
  const [{ n }] = (await sql`
    select count(*)::int as n from audit_log where audit_log::text like ${`%${token.slice(10)}%`}`) as never as [
    { n: number },
  ]
  t.equal(n, 0)
})

// Bytes that no client should send. Each request gets the response that it deserves, or its
// connection is closed; and what comes inside or behind a refused one never runs.
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { type Code, expectError } from '../api/expect-error.ts'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { fatalBytes, manyHeaders } from './fatal-bytes.ts'
import {
  bearer,
  chunk,
  chunked,
  creation,
  goodCreation,
  host,
  json,
  lastChunk,
  lengthOf,
  message,
  request,
  verify,
} from './requests.ts'
import { sendPayloads } from './send-payloads.ts'
import { openTraps } from './trap.ts'
import { openWire, statusesOf, type Wire } from './wire.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const { port } = instance
const traps = await openTraps(t, services, instance)
const sql = openDatabase(t, services.databaseUrl)
const limit = 999_999
const caller = await makeCaller(instance, { rateLimitRpm: limit })
const { token, userId } = caller
const other = await makeKey(instance, { userId })

let connections = 0
/** Responses to requests of the caller that were counted. */
let counted = 0
function note({ answers }: Wire) {
  connections++
  counted += answers.filter(({ headers }) => headers.get('x-ratelimit-limit') === String(limit)).length
}

function open(t: Test): Wire {
  const wire = openWire(port)
  t.teardown(() => {
    note(wire)
    wire.socket.destroy()
  })
  return wire
}

const keysNamed = async (name: string) =>
  (await sql`select count(*)::int as keys from api_keys where name = ${name}`)[0]!.keys
const codes: Record<number, Code> = {
  400: 'bad_request',
  413: 'payload_too_large',
  431: 'headers_too_large',
}

for (const [how, before, apart] of [
  ['alone', '', false],
  ['behind a good request', verify(token), false],
  ['in a piece of their own behind a creation', goodCreation(token, 'before'), true],
] as const) {
  t.test(
    `fatal bytes ${how} get one response and end the connection, and what follows never runs`,
    async (t) => {
      const payloads = fatalBytes(token).map(([what, status, bytes]) => ({
        what,
        status,
        pieces: (hidden: string) => (apart ? [before, bytes, hidden] : [before + bytes + hidden]),
      }))
      const first = before === '' ? [] : [apart ? 201 : 200]
      const outcomes = await sendPayloads(port, traps, payloads, async (wires) => {
        await Promise.all(wires.map((wire) => wire.ended()))
        await traps.settled()
      })
      for (const { what, status, wire, sprung, statuses } of outcomes) {
        note(wire)
        t.same(statuses, [...first, status], what)
        t.equal(wire.rest, '', 'and nothing after it')
        const last = wire.answers.at(-1)!
        t.equal(last.headers.get('connection'), 'close')
        if (status >= 400) expectError(t, last, codes[status]!)
        t.same(sprung, [], 'nothing hidden has run')
      }
    },
  )
}

// What is refused for another reason still has its body read as a body.
const post = ['POST /v1/keys HTTP/1.1', host]
const refused: Record<string, [status: number, ...head: string[]]> = {
  'a creation without a key': [401, ...post, json],
  'a creation that is not JSON': [400, ...post, bearer(token), json],
  'a creation of another media type': [415, ...post, bearer(token), 'Content-Type: text/plain'],
  'an unknown route': [404, 'POST /nope HTTP/1.1', host, bearer(token), json],
  'a wrong method': [405, 'PUT /v1/keys HTTP/1.1', host, bearer(token), json],
  'a DELETE': [404, 'DELETE /v1/keys/apk_0 HTTP/1.1', host, bearer(token)],
  'a GET': [200, 'GET /v1/verify HTTP/1.1', host, bearer(token)],
}
t.test('requests inside the body of a refused request do not run', async (t) => {
  for (const [what, [status, ...head]] of Object.entries(refused)) {
    for (const framing of ['length', 'chunks'] as const) {
      const trap = await traps.set()
      const wire = open(t)
      void wire.write(message([...head, framing === 'length' ? lengthOf(trap.bytes) : chunked]))
      // The rest comes behind the response, where that does not wait for the body.
      if (status !== 400) await wire.answered(1)
      void wire.write((framing === 'length' ? trap.bytes : chunk(trap.bytes) + lastChunk) + verify(token))
      const answers = await wire.answered(2)
      t.equal(answers[0]!.status, status, `${what}, sent by ${framing}`)
      if (answers.length === 2) t.equal(answers[1]!.status, 200, 'the next request is read where it begins')
      else t.ok(wire.closed)
      await traps.settled()
      t.same(await traps.sprung([trap]), [[]])
    }
  }
})

t.test('the body of a request behind an offer to upgrade is never read as a request', async (t) => {
  const trap = await traps.set()
  const wire = open(t)
  const offer = verify(token, 'Connection: Upgrade', 'Upgrade: websocket')
  await wire.write(offer + creation(token, [lengthOf(trap.bytes)]))
  await wire.write(trap.bytes)
  t.same(statusesOf(await wire.ended()), [200])
  await traps.settled()
  t.same(await traps.sprung([trap]), [[]])
})

for (const kib of [8, 15.9]) {
  t.test(`a key of ${kib} KiB is an unknown one`, async (t) => {
    const answer = await open(t).ask(verify(`lk_${'a'.repeat(kib * 1024)}`))
    expectError(t, answer, 'unauthorized')
    const { request_id } = answer.body.error
    t.same(await sql`select reason from audit_log where request_id = ${request_id}`, [
      { reason: 'unknown_key' },
    ])
  })
}

t.test('among 1,500 headers the key is found, wherever it is, and a second one too', async (t) => {
  const wire = open(t)
  const last = message(['GET /v1/verify HTTP/1.1', host, ...manyHeaders, bearer(token)])
  void wire.write(verify(token, ...manyHeaders) + last + verify(token, ...manyHeaders, bearer(token)))
  const answers = await wire.answered(3)
  t.same(statusesOf(answers), [200, 200, 401])
  expectError(t, answers[2]!, 'unauthorized')
})

t.test('a key that comes after the body is not a key', async (t) => {
  const name = 'authorized by a trailer'
  const trailers = `${chunk(JSON.stringify({ name }))}0\r\n${bearer(token)}\r\n\r\n`
  const wire = open(t)
  void wire.write(message([...post, json, chunked], trailers))
  expectError(t, (await wire.answered(1))[0]!, 'unauthorized')
  t.equal(await keysNamed(name), 0)
})

const unusual: Record<string, (body: string) => string> = {
  'with an unknown expectation': (body) => creation(token, ['Expect: x', lengthOf(body)], body),
  'with an offer to upgrade': (body) =>
    creation(token, ['Connection: Upgrade', 'Upgrade: h2c', lengthOf(body)], body),
  'with an offer to upgrade, in chunks': (body) =>
    creation(token, ['Connection: Upgrade', 'Upgrade: websocket', chunked], chunk(body) + lastChunk),
  'to another host in absolute-form': (body) =>
    request('POST', 'http://a:b@elsewhere.test/v1/keys', token, json, lengthOf(body)) + body,
  'with headers after its chunks': (body) => creation(token, [chunked], `${chunk(body)}0\r\nX-A: b\r\n\r\n`),
  'after empty lines': (body) => `\r\n\r\n${creation(token, [lengthOf(body)], body)}`,
}
for (const [what, bytes] of Object.entries(unusual)) {
  t.test(`a creation ${what} runs once`, async (t) => {
    const wire = open(t)
    void wire.write(bytes(JSON.stringify({ name: what })))
    t.same(statusesOf(await wire.answered(1)), [201])
    t.equal(await keysNamed(what), 1)
  })
}

t.test('a request that arrives byte by byte gets the response of any other', async (t) => {
  const wire = open(t)
  for (const byte of goodCreation(token, 'byte by byte') + verify(token)) {
    await wire.write(byte)
    await new Promise((resolve) => setImmediate(resolve))
  }
  t.same(statusesOf(await wire.answered(2)), [201, 200])
  t.equal(await keysNamed('byte by byte'), 1)
})

t.test('a hundred requests sent at once get their responses in order', async (t) => {
  const wire = open(t)
  const keys = Array.from({ length: 100 }, (_, i) => [caller, other][((i * 7) % 3) % 2]!)
  void wire.write(keys.map((key) => verify(key.token)).join(''))
  const answers = await wire.answered(keys.length)
  t.same(
    answers.map(({ headers }) => headers.get('x-key-id')),
    keys.map(({ id }) => id),
  )
})

t.test('a refused and a missed request between good ones get their responses in order', async (t) => {
  const wire = open(t)
  const [good, missed] = [verify(token), request('GET', '/nope', token)]
  void wire.write(good + verify('nope') + good + missed + good)
  t.same(statusesOf(await wire.answered(5)), [200, 401, 200, 404, 200])
  t.notOk(wire.closed)
})

t.test('a request behind a change sees the change', async (t) => {
  const key = await makeKey(instance, { userId })
  const wire = open(t)
  const body = '{"name":"changed"}'
  const send = (method: string, ...lines: string[]) => request(method, `/v1/keys/${key.id}`, token, ...lines)
  void wire.write(send('PATCH', json, lengthOf(body)) + body + send('GET') + send('DELETE') + send('GET'))
  const answers = await wire.answered(4)
  t.same(
    answers.map(({ body: { name, revoked_at } }) => [name, revoked_at !== null]),
    [
      ['changed', false],
      ['changed', false],
      ['changed', true],
      ['changed', true],
    ],
  )
})

t.test('the counter of a key shows the requests that were answered, and no other', async (t) => {
  t.ok(counted > 200, `${counted} responses`)
  t.same(await traps.counted([caller.id]), [counted])
})

t.test('more bytes behind a body that broke off do no harm', async (t) => {
  for (let i = 0; i < scaled(20, 2000); i++) {
    // A new key is read from Postgres first, so the body breaks off before anything reads it.
    const { token } = await makeKey(instance, { userId })
    const wire = openWire(port)
    const fault = once(instance.service.app.server, 'clientError')
    void wire.write(creation(token, [chunked], '2\r\n{}\r\nnonsense\r\n'))
    await fault
    void wire.write('more')
    const [refused, ...more] = await wire.ended()
    expectError(t, refused!, 'bad_request')
    t.same(more, [])
    note(wire)
  }
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200, 'the service goes on')
})

// A client that disconnects reads no response. So these use the other key, which nothing compares
// with its counter.
const half = verify(other.token).slice(0, 60)
const unfinished: Record<string, string> = {
  nothing: '',
  'half a head': half,
  'a head without its body': creation(other.token, ['Content-Length: 20']),
  'half a body': creation(other.token, ['Content-Length: 20'], '{"name"'),
  'half a chunk': creation(other.token, [chunked], '14\r\n{"name"'),
  'a request': verify(other.token),
  'three requests': verify(other.token).repeat(3),
  'a request and half of one': verify(other.token) + half,
}
const openConnections = () =>
  new Promise<number>((resolve, reject) =>
    instance.service.app.server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
  )
t.test('clients that disconnect halfway leave nothing behind', async (t) => {
  const before = await openConnections()
  for (const [what, bytes] of Object.entries(unfinished)) {
    for (const how of ['reset', 'end'] as const) {
      const wires = Array.from({ length: 20 }, () => open(t))
      await Promise.all(wires.map((wire) => wire.write(bytes)))
      for (const { socket } of wires) how === 'reset' ? socket.resetAndDestroy() : socket.end()
      await until(`the connections with ${what} are gone`, async () => {
        return wires.every(({ closed }) => closed) && (await openConnections()) <= before
      })
      // A response or none, but nothing that is not a response.
      if (how === 'end') t.same(new Set(wires.map(({ rest }) => rest)), new Set(['']), what)
    }
    t.equal(
      (await instance.ask('GET', '/v1/verify', { token: other.token })).status,
      200,
      'others are served',
    )
  }
})

t.test('while the service stops, what comes behind the last response never runs', async (t) => {
  const trap = await traps.set()
  const wire = open(t)
  t.equal((await wire.ask(verify(token))).status, 200)
  const closed = instance.service.close({ drainMs: 300 })
  void wire.write(goodCreation(token, 'the last') + trap.bytes)
  const answers = await wire.ended()
  t.same(statusesOf(answers), [201])
  t.equal(answers[0]!.headers.get('connection'), 'close')
  await closed
})

t.test('after all that nothing hidden has run, and the service found no fault of its own', async (t) => {
  const sprung = (await traps.sprung()).flat()
  const faults = instance.log.filter(({ level }) => Number(level) >= 40)
  t.same(sprung, [])
  t.same(faults, [])
  recordFigure(t, 'hostile-bytes', { connections, run: sprung.length, faults: faults.length })
})

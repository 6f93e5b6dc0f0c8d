// Bytes nobody should send, on connections of their own. Each request is answered as it deserves or its connection is closed,
// and what comes inside or behind a refused one never runs.
import t, { type Test } from 'tap'
import { openDatabase } from '../api/database.ts'
import { expectError, isRated } from '../api/expect-error.ts'
import { type Answer, makeCaller, makeKey, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { recordFigure } from '../soak.ts'
import { malformed } from './malformed.ts'
import { bearer, chunk, creation, goodCreation, host, json, lastChunk, message, verify } from './requests.ts'
import { openTraps, type Trap } from './trap.ts'
import { openWire, type Wire } from './wire.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const { port } = instance
const traps = await openTraps(t, services, instance)
const sql = openDatabase(t, services.databaseUrl)
const caller = await makeCaller(instance)
const { token } = caller
const other = await makeKey(instance, { userId: caller.userId })

let sent = 0
/** Answers to requests that were counted. */
let rated = 0

function open(t: Test): Wire {
  sent++
  const wire = openWire(port)
  t.teardown(() => {
    rated += wire.answers.filter(isRated).length
    wire.drop()
  })
  return wire
}

/** Two requests the way the hidden ones would take, begun after them. */
async function neverRun(t: Test, trap: Trap) {
  for (let i = 0; i < 2; i++) await instance.ask('DELETE', '/v1/keys/apk_0', { token: other.token })
  t.same(await trap.sprung(), [], 'nothing hidden has run')
}

const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status)
const made = async (name: string) =>
  (await sql`select count(*)::int as keys from api_keys where name = ${name}`)[0]!.keys

for (const { what, code, bytes } of malformed(token)) {
  t.test(`${what} is ${code}, the connection ends, and what comes behind does not run`, async (t) => {
    const trap = await traps.set()
    const wire = open(t)
    wire.write(bytes + trap.bytes)
    const answers = await wire.ended()
    t.equal(answers.length, 1, 'one answer')
    expectError(t, answers[0]!, code)
    t.equal(wire.rest, '', 'and nothing after it')
    await neverRun(t, trap)
  })
}

// What is refused for something else has its body read as a body all the same.
const post = ['POST /v1/keys HTTP/1.1', host]
const refusedWithBody: Record<string, { status: number; head: string[] }> = {
  'a creation without a key': { status: 401, head: [...post, json] },
  'a creation that is no JSON': { status: 400, head: [...post, bearer(token), json] },
  'a creation of another media type': {
    status: 415,
    head: [...post, bearer(token), 'Content-Type: text/plain'],
  },
  'an unknown route': { status: 404, head: ['POST /nope HTTP/1.1', host, bearer(token), json] },
  'a wrong method': { status: 405, head: ['PUT /v1/keys HTTP/1.1', host, bearer(token), json] },
  'a DELETE': { status: 404, head: ['DELETE /v1/keys/apk_0 HTTP/1.1', host, bearer(token)] },
  'a GET': { status: 200, head: ['GET /v1/verify HTTP/1.1', host, bearer(token)] },
}
for (const [what, { status, head }] of Object.entries(refusedWithBody)) {
  for (const framing of ['a length', 'chunks'] as const) {
    t.test(`requests inside the body of ${what}, sent by ${framing}, do not run`, async (t) => {
      const trap = await traps.set()
      const wire = open(t)
      const whole =
        framing === 'a length'
          ? message([...head, `Content-Length: ${trap.bytes.length}`], trap.bytes)
          : message([...head, 'Transfer-Encoding: chunked'], chunk(trap.bytes) + lastChunk)
      const headEnd = whole.indexOf('\r\n\r\n') + 4
      wire.write(whole.slice(0, headEnd))
      // The rest comes when the answer has gone, where that does not wait for the body.
      if (status !== 400) await wire.answered(1)
      wire.write(whole.slice(headEnd) + verify(token))
      const answers = await wire.answered(2)
      t.equal(answers[0]!.status, status)
      if (answers.length === 2) t.equal(answers[1]!.status, 200, 'the next request is read where it begins')
      else t.ok(wire.closed)
      await neverRun(t, trap)
    })
  }
}

for (const kib of [8, 12, 15.9]) {
  t.test(`a key of ${kib} KiB is an unknown one`, async (t) => {
    const wire = open(t)
    wire.write(verify(`lk_${'a'.repeat(kib * 1024)}`))
    const [answer] = await wire.answered(1)
    expectError(t, answer!, 'unauthorized')
    const [entry] =
      await sql`select reason from audit_log where request_id = ${answer!.body.error.request_id}`
    t.same(entry, { reason: 'unknown_key' })
  })
}

const manyHeaders = Array.from({ length: 1500 }, (_, i) => `h${i}: b`)
t.test('among 1,500 headers the key is found, wherever it is', async (t) => {
  const wire = open(t)
  wire.write(
    verify(token, ...manyHeaders) + message(['GET /v1/verify HTTP/1.1', host, ...manyHeaders, bearer(token)]),
  )
  t.same(statuses(await wire.answered(2)), [200, 200])
})
t.test('behind 1,500 headers a second key is found too', async (t) => {
  const wire = open(t)
  wire.write(verify(token, ...manyHeaders, bearer(token)))
  expectError(t, (await wire.answered(1))[0]!, 'unauthorized')
})

t.test('a key that comes after the body is no key', async (t) => {
  const name = 'authorized by a trailer'
  const trailers = `${chunk(JSON.stringify({ name }))}0\r\n${bearer(token)}\r\n\r\n`
  const wire = open(t)
  wire.write(message([...post, json, 'Transfer-Encoding: chunked'], trailers))
  expectError(t, (await wire.answered(1))[0]!, 'unauthorized')
  t.equal(await made(name), 0)
})

const once: Record<string, (body: string) => string> = {
  'with an expectation nobody knows': (body) =>
    creation(token, ['Expect: x', `Content-Length: ${body.length}`], body),
  'with an offer to upgrade': (body) =>
    creation(token, ['Connection: Upgrade', 'Upgrade: h2c', `Content-Length: ${body.length}`], body),
  'with an offer to upgrade, in chunks': (body) =>
    creation(
      token,
      ['Connection: Upgrade', 'Upgrade: websocket', 'Transfer-Encoding: chunked'],
      chunk(body) + lastChunk,
    ),
  'to another host in absolute-form': (body) =>
    creation(token, [`Content-Length: ${body.length}`], body).replace(
      '/v1/keys',
      'http://a:b@elsewhere.test/v1/keys',
    ),
  'with headers after its chunks': (body) =>
    creation(token, ['Transfer-Encoding: chunked'], `${chunk(body)}0\r\nX-A: b\r\n\r\n`),
  'after empty lines': (body) => `\r\n\r\n${creation(token, [`Content-Length: ${body.length}`], body)}`,
}
for (const [what, bytes] of Object.entries(once)) {
  t.test(`a creation ${what} runs once`, async (t) => {
    const wire = open(t)
    wire.write(bytes(JSON.stringify({ name: what })))
    t.equal((await wire.answered(1))[0]!.status, 201)
    t.equal(await made(what), 1)
  })
}

t.test('a request that arrives byte by byte is answered like any other', async (t) => {
  const wire = open(t)
  for (const byte of goodCreation(token, 'byte by byte') + verify(token)) {
    wire.write(byte)
    await new Promise((resolve) => setImmediate(resolve))
  }
  t.same(statuses(await wire.answered(2)), [201, 200])
  t.equal(await made('byte by byte'), 1)
})

t.test('a hundred requests sent at once are answered in their order', async (t) => {
  const wire = open(t)
  const keys = Array.from({ length: 100 }, (_, i) => [caller, other][((i * 7) % 3) % 2]!)
  wire.write(keys.map((key) => verify(key.token)).join(''))
  const answers = await wire.answered(keys.length)
  t.same(
    answers.map(({ headers }) => headers.get('x-key-id')),
    keys.map(({ id }) => id),
  )
  rated -= keys.filter((key) => key === other).length
})

const good = verify(token)
const orders: [what: string, bytes: string, expected: number[]][] = [
  ['good, refused, good', good + verify('nope') + good, [200, 401, 200]],
  ['good, absent, good', good + message(['GET /nope HTTP/1.1', host, bearer(token)]) + good, [200, 404, 200]],
]
for (const [what, bytes, expected] of orders) {
  t.test(`${what}: all three are answered, in their order`, async (t) => {
    const wire = open(t)
    wire.write(bytes)
    t.same(statuses(await wire.answered(3)), expected)
    t.notOk(wire.closed)
  })
}

const faults: Record<string, string> = {
  'no request': 'nonsense\r\n\r\n',
  'a length and chunks': creation(token, ['Content-Length: 5', 'Transfer-Encoding: chunked'], lastChunk),
  'headers that are too large': verify(token, `X-A: ${'a'.repeat(17_000)}`),
  CONNECT: message(['CONNECT latchkey.test:443 HTTP/1.1', host, bearer(token)]),
}
for (const [what, fault] of Object.entries(faults)) {
  for (const when of ['at once', 'one by one'] as const) {
    t.test(`a good request, ${what} and hidden ones, ${when}: the last never run`, async (t) => {
      const trap = await traps.set()
      const wire = open(t)
      const pieces = [goodCreation(token, `before ${what} ${when}`), fault, trap.bytes]
      if (when === 'at once') wire.write(pieces.join(''))
      else for (const piece of pieces) await wire.written(piece)
      const answers = await wire.ended()
      t.same(statuses(answers), [201, what === 'headers that are too large' ? 431 : 400])
      expectError(t, answers[1]!, what === 'headers that are too large' ? 'headers_too_large' : 'bad_request')
      await neverRun(t, trap)
    })
  }
}

t.test('the counter of a key shows the requests that were answered, and no other', async (t) => {
  t.ok(rated > 100, `${rated} answers`)
  t.equal(await traps.counted(caller.id), rated)
})

// Whoever goes away has nobody to answer; these are made with the other key, since some of their requests are answered to nobody.
const leave: Record<string, string> = {
  nothing: '',
  'half a head': verify(other.token).slice(0, 60),
  'a head without its body': creation(other.token, ['Content-Length: 20'], ''),
  'half a body': creation(other.token, ['Content-Length: 20'], '{"name"'),
  'half a chunk': creation(other.token, ['Transfer-Encoding: chunked'], '14\r\n{"name"'),
  'a request': verify(other.token),
  'three requests': verify(other.token).repeat(3),
  'a request and half of one': verify(other.token) + verify(other.token).slice(0, 60),
}
const held = () =>
  new Promise<number>((resolve, reject) =>
    instance.service.app.server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
  )
for (const [what, bytes] of Object.entries(leave)) {
  t.test(`a client that sends ${what} and goes away leaves nothing behind`, async (t) => {
    const before = await held()
    for (const how of ['reset', 'end'] as const) {
      const wires = Array.from({ length: 20 }, () => open(t))
      await Promise.all(wires.map((wire) => wire.written(bytes)))
      for (const { socket } of wires) how === 'reset' ? socket.resetAndDestroy() : socket.end()
      await until(
        'its connections are gone',
        async () => wires.every(({ closed }) => closed) && (await held()) <= before,
      )
      // An answer or none, but nothing that is no answer.
      if (how === 'end') for (const { rest } of wires) t.equal(rest, '')
    }
    t.equal(
      (await instance.ask('GET', '/v1/verify', { token: other.token })).status,
      200,
      'the others are served',
    )
  })
}

t.test('after all that nothing hidden has run, and the service found no fault of its own', async (t) => {
  await instance.close()
  const sprung = await traps.sprung()
  const faults = instance.log.filter(({ level }) => Number(level) >= 40)
  t.same(sprung, [])
  t.same(faults, [])
  recordFigure(t, 'hostile-bytes', { connections: sent, run: sprung.length, faults: faults.length })
})

// Where a connection ends: requests on it run one after the other, and none that comes behind the last answer, however it came
// to be the last.
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { expectError } from '../api/expect-error.ts'
import { type Answer, makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { scaled } from '../soak.ts'
import { bearer, chunk, creation, goodCreation, host, lastChunk, message, verify } from './requests.ts'
import { openTraps, type Trap } from './trap.ts'
import { openWire, type Wire } from './wire.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const { port } = instance
const traps = await openTraps(t, services, instance)
const { token, userId } = await makeCaller(instance)

function open(t: Test): Wire {
  const wire = openWire(port)
  t.teardown(() => wire.drop())
  return wire
}

/** Two requests the way the hidden ones would take, begun after them. */
async function neverRun(t: Test, trap: Trap) {
  for (let i = 0; i < 2; i++) await instance.ask('DELETE', '/v1/keys/apk_0', { token })
  t.same(await trap.sprung(), [], 'nothing hidden has run')
}

const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status)
const get = (version: string, ...lines: string[]) =>
  message([`GET /v1/verify ${version}`, bearer(token), ...lines])
const old = (bytes: string) => bytes.replace('HTTP/1.1', 'HTTP/1.0')
const chunked = 'Transfer-Encoding: chunked'

const last: [what: string, bytes: string, status: number][] = [
  ['a request without Host', get('HTTP/1.1'), 400],
  ['a request with two Hosts', get('HTTP/1.1', host, host), 400],
  ['a request of another version', get('HTTP/2.0', host), 400],
  ['a body that is too large', creation(token, ['Content-Length: 20000'], ' '.repeat(20_000)), 413],
  [
    'chunks in HTTP/1.0',
    old(creation(token, [chunked, 'Connection: keep-alive'], chunk('{}') + lastChunk)),
    400,
  ],
  [
    'a coding beside chunks',
    creation(token, ['Transfer-Encoding: gzip, chunked'], chunk('{}') + lastChunk),
    400,
  ],
  ['an empty coding', creation(token, ['Transfer-Encoding: ']), 400],
  ['an offer to upgrade', get('HTTP/1.1', host, 'Connection: Upgrade', 'Upgrade: websocket'), 200],
]
for (const [what, bytes, status] of last) {
  for (const before of ['', verify(token)]) {
    t.test(
      `what comes behind ${what}${before && ', itself behind a good request,'} never runs`,
      async (t) => {
        const trap = await traps.set()
        const wire = open(t)
        wire.write(before + bytes + trap.bytes)
        const answers = await wire.ended()
        t.same(statuses(answers), [...(before ? [200] : []), status])
        t.equal(answers.at(-1)!.headers.get('connection'), 'close')
        await neverRun(t, trap)
      },
    )
  }
}

t.test('the body of a request behind an offer to upgrade is never read as a request', async (t) => {
  const trap = await traps.set()
  const wire = open(t)
  const offer = get('HTTP/1.1', host, 'Connection: Upgrade', 'Upgrade: websocket')
  await wire.written(offer + creation(token, [`Content-Length: ${trap.bytes.length}`]))
  await wire.written(trap.bytes)
  t.same(statuses(await wire.ended()), [200])
  await neverRun(t, trap)
})

t.test('a request behind a change sees it', async (t) => {
  const key = await makeKey(instance, { userId })
  const wire = open(t)
  const body = '{"name":"changed"}'
  const head = (method: string, ...lines: string[]) =>
    message([`${method} /v1/keys/${key.id} HTTP/1.1`, host, bearer(token), ...lines])
  const json = ['Content-Type: application/json', `Content-Length: ${body.length}`]
  wire.write(head('PATCH', ...json) + body + head('GET') + head('DELETE') + head('GET'))
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

t.test('more bytes behind a body that broke off do no harm', async (t) => {
  const tries = scaled(40, 2000)
  for (let i = 0; i < tries; i++) {
    // A new key is read from Postgres first: the fault is there before anybody reads the body.
    const { token } = await makeKey(instance, { userId })
    const wire = openWire(port)
    const fault = once(instance.service.app.server, 'clientError')
    wire.write(creation(token, [chunked], '2\r\n{}\r\nnonsense\r\n'))
    await fault
    wire.write('more')
    const answers = await wire.ended()
    if (answers[0]?.body.error.code !== 'bad_request' || answers.length > 1) t.same(statuses(answers), [400])
    wire.drop()
  }
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200, 'the service goes on')
})

const manyHeaders = Array.from({ length: 1500 }, (_, i) => `h${i}: b`)
t.test('behind 1,500 headers the key is found, and a second one too', async (t) => {
  const wire = open(t)
  const one = message(['GET /v1/verify HTTP/1.1', host, ...manyHeaders, bearer(token)])
  wire.write(one + verify(token, ...manyHeaders, bearer(token)))
  const answers = await wire.answered(2)
  t.equal(answers[0]!.status, 200)
  expectError(t, answers[1]!, 'unauthorized')
})
t.test('behind 1,500 headers a second Host is found', async (t) => {
  const wire = open(t)
  wire.write(verify(token, ...manyHeaders, host))
  expectError(t, (await wire.ended())[0]!, 'bad_request')
})

t.test(
  'while the service stops, what comes behind the answer that ends the connection never runs',
  async (t) => {
    const trap = await traps.set()
    const wire = open(t)
    wire.write(verify(token))
    await wire.answered(1)
    const closed = instance.service.close(300)
    wire.write(goodCreation(token, 'the last') + trap.bytes)
    const answers = await wire.ended()
    t.same(statuses(answers), [200, 201])
    t.equal(answers[1]!.headers.get('connection'), 'close')
    await closed
    t.same(await traps.sprung(), [], 'nor has anything else that was hidden')
  },
)

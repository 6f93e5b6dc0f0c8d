import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { type Asked, assertSameAnswer } from '../../bench/same-answer.ts'

async function answering(t: Test, name: string, body: string, headers = {}): Promise<Asked> {
  const server = createServer((_request, response) => response.writeHead(200, headers).end(body))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return { name, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token: 'lk_x' }
}

t.test('candidates with the same headers and as many bytes may be compared', async (t) => {
  const [a, b] = [await answering(t, 'a', 'xy'), await answering(t, 'b', 'zz')]
  t.equal((await assertSameAnswer([a, b])).size, 0)
})

t.test('a missing header or another length is refused', async (t) => {
  const a = await answering(t, 'a', 'xy', { 'x-one': '1' })
  await t.rejects(assertSameAnswer([a, await answering(t, 'b', 'xy')]), { message: /^b answers / })
  await t.rejects(assertSameAnswer([a, await answering(t, 'c', 'xyz', { 'x-one': '1' })]), {
    message: /^c answers /,
  })
})

t.test('an older Latchkey may send other headers, which are named', async (t) => {
  const a = await answering(t, 'a', 'xy', { 'x-one': '1' })
  const older = { ...(await answering(t, 'b', 'xy', { 'x-two': '2' })), otherHeaders: true }
  t.equal(
    (await assertSameAnswer([a, older])).get('b'),
    'Its answer differs: it lacks x-one and also has x-two.',
  )
  const shorter = { ...(await answering(t, 'c', 'x')), otherHeaders: true }
  await t.rejects(assertSameAnswer([a, shorter]), { message: /^c answers / })
})

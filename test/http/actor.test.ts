// Who did what, as the audit log gets it from a request.
import type { FastifyRequest } from 'fastify'
import t from 'tap'
import { actorOf, askedOf } from '../../src/http/routes/actor.ts'
import { tokenFormat } from '../../src/rules/token.ts'

t.test('a client that disconnected before its request was decided has no address', async (t) => {
  // Node forgets the address of a closed socket.
  const gone = { id: 'req_1', method: 'DELETE', raw: { url: '/v1/keys/apk_1' }, headers: {}, socket: {} }
  t.match(actorOf(gone as unknown as FastifyRequest, tokenFormat('lk')), { requestId: 'req_1', ip: null })
})

t.test('an address whose zone makes it longer than 64 characters is none', async (t) => {
  const ipOf = (ip: string) => askedOf({ ip }, tokenFormat('lk')).ip
  const address = 'fe80::1%'.padEnd(64, 'x')
  t.equal(ipOf(address), address)
  t.equal(ipOf(`${address}x`), null)
})

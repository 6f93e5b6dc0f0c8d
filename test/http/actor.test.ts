// Who did what, as the audit log gets it from a request.
import type { FastifyRequest } from 'fastify'
import t from 'tap'
import { actorOf } from '../../src/http/routes/actor.ts'
import { tokenFormat } from '../../src/rules/token.ts'

t.test('a client that disconnected before its request was decided has no address', async (t) => {
  // Node forgets the address of a closed socket.
  const gone = { id: 'req_1', method: 'DELETE', raw: { url: '/v1/keys/apk_1' }, headers: {}, socket: {} }
  t.match(actorOf(gone as unknown as FastifyRequest, tokenFormat('lk')), { requestId: 'req_1', ip: null })
})

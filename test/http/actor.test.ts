// Who made a request, for the audit log.
import type { FastifyRequest } from 'fastify'
import t from 'tap'
import { actorOf } from '../../src/http/routes/actor.ts'
import { tokenFormat } from '../../src/rules/token.ts'

t.test('a client that has gone before its request is decided has no address', async (t) => {
  // As Fastify has it then: Node forgets the address of a socket that is closed.
  const gone = { id: 'req_1', method: 'DELETE', raw: { url: '/v1/keys/apk_1' }, headers: {}, socket: {} }
  t.match(actorOf(gone as unknown as FastifyRequest, tokenFormat('lk')), { requestId: 'req_1', ip: null })
})

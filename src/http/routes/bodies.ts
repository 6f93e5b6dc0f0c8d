/** `onRequest` hooks for routes that need no body. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { dropBody, isUnreadAtEnd } from '../../../plugins/errors.ts'

/** For a body whose members are all optional: no body is an empty one, whatever its type. */
export function optionalBody(request: FastifyRequest, _reply: FastifyReply, done: () => void) {
  request.body = {}
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers
  if (length === '0' && coding === undefined) delete request.raw.headers['content-type']
  done()
}

/**
 * For routes that ignore their body, such as DELETE (RFC 9110, section 9.3.5). It is not read, so
 * nothing about it can be invalid, but if the connection ends with the response, it arrives first.
 */
export function ignoreBody(request: FastifyRequest, reply: FastifyReply, done: () => void) {
  const { raw } = request
  for (const name of ['content-type', 'content-length', 'transfer-encoding']) delete raw.headers[name]
  if (isUnreadAtEnd(request, reply)) dropBody(raw).then(done)
  else done()
}

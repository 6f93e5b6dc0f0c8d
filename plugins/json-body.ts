/**
 * Bodies are JSON in valid UTF-8, uncompressed, and say so; what is not is refused before it is read as something else.
 * Fastify's own parser would replace broken UTF-8 and take a body it cannot decompress for bad JSON.
 */
import { isUtf8 } from 'node:buffer'
import fp from 'fastify-plugin'
import { ApiError } from './api-error.ts'

export default fp(
  async (app) => {
    app.removeAllContentTypeParsers()
    app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
      const coding = request.headers['content-encoding']
      if (coding !== undefined && coding.toLowerCase() !== 'identity') {
        return done(new ApiError('unsupported_media_type'))
      }
      if (body.length === 0) return done(emptyBody())
      if (!isUtf8(body)) {
        return done(new ApiError('invalid_json', { message: 'The request body is not valid UTF-8.' }))
      }
      try {
        // A `__proto__` member stays an own property here, and validation refuses it by name like any unknown one.
        done(null, JSON.parse(body.toString('utf8')))
      } catch (cause) {
        done(new ApiError('invalid_json', { cause }))
      }
    })
    // With no Content-Type and no bytes Fastify calls no parser at all: the same answer as for zero bytes of JSON.
    app.addHook('preValidation', (request, _reply, done) => {
      const wantsBody = request.routeOptions.schema?.body !== undefined
      if (wantsBody && request.body === undefined) return done(emptyBody())
      done()
    })
  },
  { name: 'json-body' },
)

const emptyBody = () => new ApiError('invalid_json', { message: 'The request body is empty.' })

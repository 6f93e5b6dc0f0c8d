/**
 * Accepts only bodies that are declared as JSON and are valid UTF-8, uncompressed, and without
 * repeated members. Anything else is refused before it can be misread. Fastify's own parser would
 * replace invalid UTF-8, and would report a compressed body as invalid JSON.
 */
import { isUtf8 } from 'node:buffer'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError } from './api-error.ts'
import { duplicateMember } from './duplicate-member.ts'
import { shownMember } from './shown-text.ts'

export interface JsonBodyOptions {
  /** Removes secrets from the name of a repeated member, which the error shows. */
  redact?: (text: string) => string
}

/** No body needs so many. With millions, parsing would hold up all requests for seconds. */
const valuesMax = 100_000

export default fp<JsonBodyOptions>(
  async (app, { redact = (text) => text }) => {
    app.removeAllContentTypeParsers()
    // An error takes the place of the body, and preValidation throws it. After an error from a parser,
    // Fastify would close the connection, although this body has been read to its end.
    app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
      done(null, parsed(request, body))
    })
    function parsed(request: FastifyRequest, body: Buffer): unknown {
      if (!isPlainUtf8(request)) return new ApiError('unsupported_media_type')
      // A hook may have set what an absent body stands for.
      if (body.length === 0) return request.body ?? emptyBody()
      if (!isUtf8(body))
        return new ApiError('invalid_json', { message: 'The request body is not valid UTF-8.' })
      if (body.length > valuesMax && hasTooManyValues(body)) return tooManyValues()
      const text = body.toString('utf8')
      let json: unknown
      try {
        // A `__proto__` member stays an own property here, and validation refuses it by name like
        // any unknown member.
        json = JSON.parse(text)
      } catch (cause) {
        return new ApiError('invalid_json', { cause })
      }
      const repeated = duplicateMember(text)
      return repeated === null ? json : repeatedMember(shownMember(repeated, redact))
    }
    // Without a Content-Type and a body, Fastify calls no parser. Such a request gets the same
    // error as an empty JSON body.
    app.addHook('preValidation', (request, _reply, done) => {
      if (request.body instanceof ApiError) return done(request.body)
      const wantsBody = request.routeOptions.schema?.body !== undefined
      if (wantsBody && request.body === undefined) return done(emptyBody())
      done()
    })
  },
  { name: 'json-body' },
)

/** One Content-Type, no charset except UTF-8, and no Content-Encoding. */
function isPlainUtf8({ headers, raw }: FastifyRequest): boolean {
  const coding = headers['content-encoding']
  if (coding !== undefined && coding.toLowerCase() !== 'identity') return false
  const charsets = headers['content-type']!.matchAll(/;\s*charset\s*=\s*"?([^";\s]*)/gi)
  for (const [, charset] of charsets) if (charset!.toLowerCase() !== 'utf-8') return false
  // Node hides a second Content-Type, which a proxy may have used.
  const types = raw.rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === 'content-type')
  return types.length < 2
}

/** Each value follows one of these, or is the only one. */
const beforeValue = new Set(Buffer.from('[{,'))

function hasTooManyValues(body: Buffer): boolean {
  let values = 0
  let isInText = false
  for (let i = 0; i < body.length; i++) {
    const byte = body[i]!
    if (byte === 0x22 /* " */) isInText = !isInText
    else if (byte === 0x5c /* \ */) i++
    else if (!isInText && beforeValue.has(byte) && ++values > valuesMax) return true
  }
  return false
}

const tooManyValues = () =>
  new ApiError('invalid_json', {
    message: `The request body has over ${valuesMax} values.`,
    suggestion: 'Send fewer values in a request.',
  })

const repeatedMember = (param: string) =>
  new ApiError('invalid_json', {
    param,
    message: 'The request body has a member more than once.',
    suggestion: 'Send each member of an object once.',
  })

const emptyBody = () => new ApiError('invalid_json', { message: 'The request body is empty.' })

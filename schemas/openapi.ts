/** The OpenAPI document as a response. Its own shape is that of its standard. */
import { Type } from '@sinclair/typebox'

export const OpenApiDocument = Type.Unsafe<unknown>({
  $id: 'OpenApiDocument',
  type: 'object',
  additionalProperties: true,
  description: 'An OpenAPI 3.1 document.',
  examples: [{ openapi: '3.1.0' }],
})
export const NotModified = Type.Null({ description: 'Not modified since the given `ETag`.' })

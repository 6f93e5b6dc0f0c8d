/** What the API document of the public listener says beside its routes. */
import type { OpenApiOptions, Place } from '../openapi/document.ts'
import { rateHeaders } from '../openapi/responses.ts'

type Urls = Pick<OpenApiOptions, 'serverUrl' | 'docsBase'>

const guarded: Place = {
  security: [{ apiKey: [] }],
  headers: ['cache-control', ...rateHeaders],
  errors: ['unauthorized', 'rate_limit_exceeded', 'service_unavailable'],
}
const open: Place = { security: [], headers: [], errors: [] }

export const publicOpenApi = (urls: Urls): OpenApiOptions => ({
  ...urls,
  title: 'Latchkey',
  description:
    'API keys: create, list, change and revoke them. Each request is authenticated by a key and counts against its `rate_limit_rpm`, whatever the response.',
  tags: {
    Keys: 'The keys of one user.',
    Verification: 'What a gateway asks before it lets a request through.',
    Documentation: 'Needs no key and counts against none.',
  },
  securitySchemes: {
    apiKey: {
      type: 'http',
      scheme: 'bearer',
      description: 'An API key: exactly `Bearer`, one space, and the key.',
    },
  },
  placeOf: ({ url }) => (url.startsWith('/v1/') ? guarded : open),
})

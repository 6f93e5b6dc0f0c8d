/** What the API document of the ops listener says beside its routes. */
import type { OpenApiOptions, Place } from '../openapi/document.ts'
import { cookieName } from './sessions.ts'

type Urls = Pick<OpenApiOptions, 'serverUrl' | 'docsBase'>

const headers = ['cache-control'] as const
const operator: Place = {
  security: [{ operatorToken: [] }, { session: [] }],
  headers,
  errors: ['operator_unauthorized', 'rate_limit_exceeded', 'service_unavailable'],
}
const github: Place = { ...operator, security: [{ githubKey: [], githubSignature: [] }] }
const metrics: Place = { ...operator, security: [{ metricsToken: [] }, {}] }
const probe: Place = { security: [], headers, errors: [] }

export const adminOpenApi = (urls: Urls): OpenApiOptions => ({
  ...urls,
  title: 'Latchkey for operators',
  description:
    'The ops listener: probes, metrics, and the admin API with users, keys of any user, counters, and the audit log. Without OPS_TOKEN, requests from the same machine need no token.',
  tags: {
    Users: 'Owners of keys.',
    Keys: 'Keys of any user.',
    'Audit log': 'Who did what, and why requests were refused.',
    Counters: 'Who uses how much right now.',
    Lookup: 'For people who answer questions.',
    Monitoring: 'For load balancers, Prometheus and tools.',
  },
  securitySchemes: {
    operatorToken: { type: 'http', scheme: 'bearer', description: 'A token from OPS_TOKEN.' },
    session: {
      type: 'apiKey',
      in: 'cookie',
      name: cookieName,
      description: 'What the dashboard gets for an operator token.',
    },
    githubKey: {
      type: 'apiKey',
      in: 'header',
      name: 'Github-Public-Key-Identifier',
      description: 'Which of its keys GitHub has signed the body with.',
    },
    githubSignature: {
      type: 'apiKey',
      in: 'header',
      name: 'Github-Public-Key-Signature',
      description: 'ECDSA on P-256 with SHA-256 over the bytes of the body, as DER in base64.',
    },
    metricsToken: { type: 'http', scheme: 'bearer', description: 'METRICS_TOKEN, if the service has one.' },
  },
  placeOf({ config }) {
    if (config?.credential === 'none') return probe
    if (config?.credential === 'signature') return github
    return config?.credential === 'metrics' ? metrics : operator
  },
})

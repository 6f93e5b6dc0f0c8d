/** The OpenAPI document of the ops listener, and the page made from it. */
import type { FastifyInstance } from 'fastify'
import { OpenApiDocument } from '../../../schemas/openapi.ts'
import { contentSecurityPolicy } from '../../http/routes/pages/html.ts'
import { reference } from '../../http/routes/pages/reference.ts'

export interface DocumentRoutesOptions {
  /** The URL of the error pages, ending in a slash. */
  docsBase: () => string
}

export async function documentRoutes(app: FastifyInstance, { docsBase }: DocumentRoutesOptions) {
  const schema = {
    operationId: 'getDocument',
    summary: 'Get this document',
    tags: ['Monitoring'],
    response: { 200: OpenApiDocument },
  }
  app.get('/admin/openapi.json', { schema }, (_request, reply) =>
    reply.type('application/json; charset=utf-8').send(JSON.stringify(app.openapi())),
  )
  app.get('/admin/docs', { schema: { hide: true } }, (_request, reply) => {
    const page = reference(app.openapi(), {
      documentUrl: 'openapi.json',
      errorsUrl: docsBase().replace(/\/$/, ''),
      credential: 'OPS_TOKEN',
    })
    return reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', contentSecurityPolicy)
      .send(page)
  })
}

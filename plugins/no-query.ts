/**
 * A route without a query schema takes no query parameters: they are a 400, not ignored. Covers the
 * routes registered after it, apart from hidden ones. It needs the Ajv options of `validation`:
 * Fastify's own would remove the parameters.
 */
import type { FastifySchema } from 'fastify'
import fp from 'fastify-plugin'

const noQuery = { type: 'object', properties: {}, additionalProperties: false } as const

export default fp(
  async (app) => {
    app.addHook('onRoute', (route) => {
      // Fastify accepts both names.
      const { hide, querystring, query } = (route.schema ?? {}) as FastifySchema & { query?: unknown }
      if (hide || (querystring ?? query) !== undefined) return
      route.schema = { ...route.schema, querystring: noQuery }
    })
  },
  { name: 'no-query' },
)

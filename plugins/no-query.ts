/**
 * A route without a query schema takes no query parameters: they are a 400, not ignored. Covers the
 * routes registered after it, apart from hidden ones.
 */
import fp from 'fastify-plugin'

const noQuery = { type: 'object', properties: {}, additionalProperties: false } as const

export default fp(
  async (app) => {
    app.addHook('onRoute', (route) => {
      if (route.schema?.hide || route.schema?.querystring !== undefined) return
      route.schema = { ...route.schema, querystring: noQuery }
    })
  },
  { name: 'no-query' },
)

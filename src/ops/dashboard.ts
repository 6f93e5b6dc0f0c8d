/**
 * The dashboard: its page, its files, and the session that stands for an operator token in a
 * browser. The page itself holds no data. It reads the admin API.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { LoginBody } from '../../schemas/login.ts'
import type { Sessions } from './sessions.ts'

export interface DashboardOptions {
  sessions: Sessions
  /** Whether operators need a token, and so a session. */
  hasTokens: boolean
}

const folder = dirname(fileURLToPath(import.meta.resolve('#dashboard/dashboard.html')))
const uplot = new URL('./', import.meta.resolve('uplot'))

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
}

/** The page's own: no part of the API. */
const hidden = { schema: { hide: true } }

/** Only our own files, no inline script or style, and no text that becomes markup. */
const pageHeaders = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
}

export const dashboardRoutes: FastifyPluginAsyncTypebox<DashboardOptions> = async (
  app,
  { sessions, hasTokens },
) => {
  const files = new Map(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name))]))
  for (const name of ['uPlot.esm.js', 'uPlot.min.css']) files.set(name, readFileSync(new URL(name, uplot)))

  const open = { ...hidden, config: { credential: 'none' } } as const
  for (const [name, content] of files) {
    if (name.endsWith('.html')) continue
    const etag = `"${createHash('sha256').update(content).digest('base64url')}"`
    app.get(`/dashboard/${name}`, open, ({ headers }, reply) => {
      // They hold no data. A browser may store them, and asks each time whether they have changed.
      reply.headers({ 'cache-control': 'no-cache', etag })
      if (headers['if-none-match'] === etag) return reply.code(304).send()
      return reply.type(types[extname(name)]!).send(content)
    })
  }
  // Browsers ask for it by themselves, also beside a page of JSON.
  app.get('/favicon.ico', open, (_request, reply) => reply.type(types['.svg']!).send(files.get('icon.svg')))

  app.get('/', { ...hidden, config: { credential: 'page' } }, ({ operator }, reply) => {
    const page = files.get(operator === null ? 'login.html' : 'dashboard.html')
    return reply.headers(pageHeaders).type(types['.html']!).send(page)
  })

  if (!hasTokens) return
  app.post(
    '/login',
    {
      config: { credential: 'login' },
      schema: { hide: true, body: LoginBody, response: { 204: Type.Null() } },
    },
    async ({ operator, headers }, reply) => {
      // Where a proxy speaks https, only the browser says so.
      const isSecure = headers.origin?.startsWith('https:') ?? false
      return reply.header('set-cookie', sessions.begin(operator!, isSecure)).code(204).send(null)
    },
  )
  app.post('/logout', { schema: { hide: true, response: { 204: Type.Null() } } }, async (_request, reply) =>
    reply.header('set-cookie', sessions.end()).code(204).send(null),
  )
}

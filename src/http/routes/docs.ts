/**
 * Paths that need no key and are never counted: the pages that `docs_url` leads to, made from the
 * same table as the error envelope, and the paths that browsers and tools request by themselves.
 * Without a route, each of those requests would be a refusal to record.
 */
import type { FastifyInstance } from 'fastify'
import { ApiError } from '../../../plugins/api-error.ts'
import { type ErrorCode, type ErrorRow, errorTable } from '../../../schemas/error.ts'

export interface DocsRoutesOptions {
  /** The path of BASE_URL, without a trailing slash. Links begin with it. */
  basePath: string
}

const iconMaxAgeS = 86_400

export async function docsRoutes(app: FastifyInstance, { basePath }: DocsRoutesOptions) {
  const rows = Object.entries<ErrorRow>(errorTable)
  const pages = new Map(rows.map(([code, row]) => [code, errorPage(code as ErrorCode, row, basePath)]))
  const index = indexPage(rows, basePath)
  const html = 'text/html; charset=utf-8'

  app.addHook('onSend', (_request, reply, _payload, done) => {
    reply.header('content-security-policy', "default-src 'none'; style-src 'unsafe-inline'")
    done()
  })
  app.get('/', (_request, reply) => reply.redirect(`${basePath}/docs`))
  app.get('/docs', (_request, reply) => reply.type(html).send(index))
  app.get('/docs/errors', (_request, reply) => reply.type(html).send(index))
  app.get<{ Params: { code: string } }>('/docs/errors/:code', (request, reply) => {
    const page = pages.get(request.params.code)
    if (page === undefined) throw new ApiError('route_not_found')
    return reply.type(html).send(page)
  })
  app.get('/favicon.ico', (_request, reply) =>
    reply.code(204).header('cache-control', `public, max-age=${iconMaxAgeS}`).send(),
  )
  for (const path of ['/docs/*', '/openapi.json']) {
    app.get(path, () => {
      throw new ApiError('route_not_found')
    })
  }
}

function indexPage(rows: [code: string, row: ErrorRow][], basePath: string): string {
  const row = ([code, { status, message }]: [string, ErrorRow]) =>
    `<tr><td>${status}</td><td><a href="${basePath}/docs/errors/${code}"><code>${code}</code></a></td><td>${prose(message)}</td></tr>`
  return page(
    'Errors',
    `<h1>Errors</h1>
<p>Every error is a JSON object with one member <code>error</code>. Its <code>code</code> is one of these.</p>
<table><thead><tr><th>Status</th><th>Code</th><th>What happened</th></tr></thead>
<tbody>
${rows.map(row).join('\n')}
</tbody></table>`,
  )
}

function errorPage(
  code: ErrorCode,
  { status, type, message, suggestion, about }: ErrorRow,
  basePath: string,
) {
  return page(
    code,
    `<p><a href="${basePath}/docs">All errors</a></p>
<h1><code>${code}</code></h1>
<dl><dt>Status</dt><dd>${status}</dd><dt>Type</dt><dd><code>${type}</code></dd></dl>
<p>${prose(message)}</p>
<h2>What to do</h2>
<p>${prose(suggestion)}</p>
<h2>When it happens</h2>
<p>${prose(about)}</p>`,
  )
}

/** Turns text of the table into HTML: escapes it, and marks up what is in backticks as code. */
const prose = (text: string) =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll(/`([^`]+)`/g, '<code>$1</code>')

const page = (title: string, body: string) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title} · Latchkey</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}code{background:#8882;padding:.1em .3em}dt{font-weight:600}dd{margin:0 0 .5rem}table{border-collapse:collapse}th,td{text-align:left;vertical-align:top;padding:.25rem 1rem .25rem 0}</style>
</head><body>
${body}
</body></html>
`

/** /docs/errors/{code}: the page that each `docs_url` names, made from the table that makes the envelope. No key needed. */
import type { FastifyInstance } from 'fastify'
import { ApiError } from '../../../plugins/api-error.ts'
import { type ErrorCode, type ErrorRow, errorTable } from '../../../schemas/error.ts'

export async function docsRoutes(app: FastifyInstance, { onAnswer }: { onAnswer: (status: number) => void }) {
  const pages = new Map(
    Object.entries(errorTable).map(([code, row]) => [code, errorPage(code as ErrorCode, row)]),
  )
  const index = page('Errors', `<h1>Errors</h1><ul>${Object.keys(errorTable).map(item).join('')}</ul>`)

  app.addHook('onSend', (_request, reply, _payload, done) => {
    if (reply.statusCode < 400) onAnswer(reply.statusCode)
    reply.header('content-security-policy', "default-src 'none'; style-src 'unsafe-inline'")
    done()
  })
  app.get('/docs/errors', (_request, reply) => reply.type('text/html; charset=utf-8').send(index))
  app.get<{ Params: { code: string } }>('/docs/errors/:code', (request, reply) => {
    const html = pages.get(request.params.code)
    if (html === undefined) throw new ApiError('route_not_found')
    return reply.type('text/html; charset=utf-8').send(html)
  })
  app.get('/docs/*', () => {
    throw new ApiError('route_not_found')
  })
}

const item = (code: string) => `<li><a href="/docs/errors/${code}"><code>${code}</code></a></li>`

function errorPage(code: ErrorCode, { status, type, message, suggestion, about }: ErrorRow): string {
  return page(
    code,
    `<p><a href="/docs/errors">All errors</a></p>
<h1><code>${code}</code></h1>
<dl><dt>Status</dt><dd>${status}</dd><dt>Type</dt><dd><code>${type}</code></dd></dl>
<p>${prose(message)}</p>
<h2>What to do</h2>
<p>${prose(suggestion)}</p>
<h2>When it happens</h2>
<p>${prose(about)}</p>`,
  )
}

/** Text of the table → HTML: escaped, and `code` where it has backticks. */
const prose = (text: string) =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll(/`([^`]+)`/g, '<code>$1</code>')

const page = (title: string, body: string) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title} · Latchkey</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:2rem auto;padding:0 1rem}code{background:#8882;padding:.1em .3em}dt{font-weight:600}dd{margin:0 0 .5rem}</style>
</head><body>
${body}
</body></html>
`

/** The pages that `docs_url` leads to, made from the same table as the error envelope. */
import { type ErrorCode, type ErrorRow, errorTable } from '../../../../schemas/error-table.ts'
import type { OpenApiDocument } from '../../../openapi/document-types.ts'
import { code, page, prose, table } from './html.ts'
import { operationsOf, type PlacedOperation, responseOf } from './operations.ts'

const codes = Object.keys(errorTable) as ErrorCode[]

export function errorIndex(basePath: string): string {
  const rows = codes.map((name) => {
    const { status, message } = errorTable[name]
    return [String(status), `<a href="${basePath}/docs/errors/${name}">${code(name)}</a>`, prose(message)]
  })
  return page(
    'Errors',
    `<p><a href="${basePath}/docs">All operations</a></p>
<h1>Errors</h1>
<p>Every error is a JSON object with one member ${code('error')}. Its ${code('code')} is one of these.</p>
${table(['Status', 'Code', 'What happened'], rows)}`,
  )
}

/** By code. Each page links to the operations that can send the error. */
export function errorPages(document: OpenApiDocument, basePath: string): Map<string, string> {
  return new Map(codes.map((name) => [name, errorPage(name, sendersOf(name, document), basePath)]))
}

function errorPage(name: ErrorCode, senders: PlacedOperation[], basePath: string): string {
  const { status, type, message, suggestion, about }: ErrorRow = errorTable[name]
  const links = senders.map(
    ({ method, path, operation }) =>
      `<li><a href="${basePath}/docs#${operation.operationId}">${code(`${method} ${path}`)}</a></li>`,
  )
  return page(
    name,
    `<p><a href="${basePath}/docs">All operations</a> · <a href="${basePath}/docs/errors">All errors</a></p>
<h1>${code(name)}</h1>
<dl><dt>Status</dt><dd>${status}</dd><dt>Type</dt><dd>${code(type)}</dd></dl>
<p>${prose(message)}</p>
<h2>What to do</h2>
<p>${prose(suggestion)}</p>
<h2>When it happens</h2>
<p>${prose(about)}</p>${links.length === 0 ? '' : `\n<h2>Operations</h2>\n<ul>\n${links.join('\n')}\n</ul>`}`,
  )
}

/** The operations that have the code among the examples of a response. */
const sendersOf = (name: ErrorCode, document: OpenApiDocument): PlacedOperation[] =>
  operationsOf(document).filter(({ operation }) =>
    Object.keys(operation.responses).some((status) => {
      const { content } = responseOf(document, operation, status)
      return name in (content?.['application/json']?.examples ?? {})
    }),
  )

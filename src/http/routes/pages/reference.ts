/** The reference of a listener, made from its API document: one page that needs no JavaScript. */
import type {
  MediaType,
  OpenApiDocument,
  Operation,
  Parameter,
  Schema,
} from '../../../openapi/document-types.ts'
import { code, escaped, page, prose, table } from './html.ts'
import { curlOf, nameOf, operationsOf, type PlacedOperation, responseOf } from './operations.ts'

export interface ReferenceOptions {
  /** Where the document itself is. */
  documentUrl: string
  /** The index of the error pages, without a slash at the end. */
  errorsUrl: string
  /** The shell variable that holds the reader's token. */
  credential: string
}

export function reference(document: OpenApiDocument, options: ReferenceOptions): string {
  const { info, tags } = document
  const operations = operationsOf(document)
  const sections = tags.map(({ name, description }) => {
    const own = operations.filter(({ operation }) => operation.tags.includes(name))
    return `<h2>${escaped(name)}</h2>\n<p>${prose(description)}</p>\n${own.map(section).join('\n')}`
  })
  const bodies = new Set(
    operations.map(({ operation }) => bodyOf(operation)?.$ref).map((ref = '') => nameOf(ref)),
  )
  const schemas = Object.entries(document.components.schemas)
    .filter(([name]) => !bodies.has(name))
    .map(([name, schema]) => `<h3 id="schema-${name}">${code(name)}</h3>\n${described(schema)}`)
  return page(
    info.title,
    `<h1>${escaped(info.title)}</h1>
<p>${prose(info.description)}</p>
<p>Version ${escaped(info.version)} · <a href="${options.documentUrl}">OpenAPI document</a> · <a href="${options.errorsUrl}">All errors</a></p>
${contents(operations)}
${sections.join('\n')}
<h2>Schemas</h2>
${schemas.join('\n')}`,
  )

  function section(placed: PlacedOperation): string {
    const { method, path, operation } = placed
    const { operationId, summary, description, parameters = [], responses } = operation
    const successes = Object.keys(responses).filter((status) => status < '4')
    const body = bodyOf(operation)
    const shown = body?.$ref === undefined ? body : document.components.schemas[nameOf(body.$ref)]
    return [
      `<h3 id="${operationId}">${code(`${method} ${path}`)}</h3>`,
      `<p>${prose([`${summary}.`, description].filter(Boolean).join(' '))}</p>`,
      `<pre>${escaped(curlOf(placed, document, options.credential))}</pre>`,
      parameters.length > 0 && parameterTable(parameters),
      shown && `<h4>Body</h4>\n${described(shown)}`,
      ...successes.map((status) => success(placed, status)),
      '<h4>Errors</h4>',
      errorList(placed),
    ]
      .filter(Boolean)
      .join('\n')
  }

  function success({ operation }: PlacedOperation, status: string): string {
    const { headers, content = {} } = responseOf(document, operation, status)
    const [media] = Object.values(content)
    const rows = Object.entries(headers).map(([name, header]) => [code(name), prose(header.description)])
    return `<h4>Response ${status}</h4>
${media ? example(media) : ''}
<details><summary>Headers</summary>\n${table(['Header', ''], rows)}\n</details>`
  }

  function errorList({ operation }: PlacedOperation): string {
    const rows = Object.keys(operation.responses).flatMap((status) => {
      const { examples = {} } = responseOf(document, operation, status).content?.['application/json'] ?? {}
      return Object.entries(examples).map(([name, { summary }]) => [
        status,
        `<a href="${options.errorsUrl}/${name}">${code(name)}</a>`,
        prose(summary),
      ])
    })
    return table(['Status', 'Code', ''], rows)
  }
}

const bodyOf = ({ requestBody }: Operation) => requestBody?.content['application/json']?.schema

function contents(operations: PlacedOperation[]): string {
  const rows = operations.map(({ method, path, operation: { operationId, summary } }) => [
    `<a href="#${operationId}">${code(`${method} ${path}`)}</a>`,
    prose(summary),
  ])
  return `<nav>${table(['Operation', ''], rows)}</nav>`
}

const parameterTable = (parameters: Parameter[]) =>
  table(
    ['Parameter', 'Type', ''],
    parameters.map(({ name, in: place, schema, description = '' }) => [
      code(place === 'path' ? `{${name}}` : name),
      typeOf(schema),
      prose(description),
    ]),
  )

/** The members of an object. What a named member holds is shown once, under its name. */
function described(schema: Schema): string {
  const { properties, required = [], description } = schema
  const about = description === undefined ? '' : `<p>${prose(description)}</p>\n`
  if (properties === undefined) return `${about}<p>${typeOf(schema)}</p>`
  const rows = Object.entries(properties).map(([name, member]) => [
    code(name),
    typeOf(member) + (required.includes(name) ? '' : ', optional'),
    prose(member.description ?? ''),
  ])
  return about + table(['Member', 'Type', ''], rows)
}

function typeOf({ $ref, type, items, anyOf, properties, enum: values, const: only }: Schema): string {
  if ($ref !== undefined) return `<a href="#schema-${nameOf($ref)}">${code(nameOf($ref))}</a>`
  if (anyOf) return anyOf.map(typeOf).join(' or ')
  if (items) return `list of ${typeOf(items)}`
  if (values) return values.map((value) => code(JSON.stringify(value))).join(', ')
  if (only !== undefined) return code(JSON.stringify(only))
  if (properties) return `object with ${Object.keys(properties).map(code).join(', ')}`
  return [type].flat().join(' or ')
}

const example = ({ schema, example }: MediaType) =>
  `${schema.$ref === undefined ? '' : `<p>${typeOf(schema)}</p>`}
<pre>${escaped(typeof example === 'string' ? example : JSON.stringify(example, null, 2))}</pre>`

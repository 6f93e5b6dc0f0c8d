/** Whether a response is one that the API document describes: its status, headers, body and error code. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import type { OpenApiDocument, Operation, Response, Schema } from '../../src/openapi/document-types.ts'
import type { Answer } from '../instance.ts'

/** Throws an error that says how a response differs from what is described. */
export type Described = (method: string, target: string, answer: Answer) => void

/** Of the connection, not of an operation. */
const ofTransport = [
  'date',
  'connection',
  'keep-alive',
  'content-length',
  'content-type',
  'transfer-encoding',
]
/** What a path or a method that is not in the document may get. */
const elsewhere =
  /^(route_not_found|method_not_allowed|unauthorized|operator_unauthorized|rate_limit_exceeded)$/
const ofAnyRequest = /^(bad_request|request_timeout|headers_too_large|internal_error|service_unavailable)$/

const checks = new Map<string, Described>()

/** Instances that have the same document share its validators: to make them takes longest. */
export function describedBy(document: OpenApiDocument): Described {
  const text = JSON.stringify(document)
  const described = checks.get(text) ?? checksOf(document)
  checks.set(text, described)
  return described
}

function checksOf(document: OpenApiDocument): Described {
  const ajv = new Ajv2020({ strict: false, validateSchema: false, formats: { uri: URL.canParse } })
  ajv.addSchema({ $id: 'api', components: document.components })
  const validators = new Map<Schema, ValidateFunction>()
  const paths = Object.entries(document.paths)
    .map(([path, operations]) => ({ pattern: patternOf(path), operations }))
    // A path without parameters comes before one that it also fits.
    .sort((a, b) => Number(a.pattern.source.includes('*')) - Number(b.pattern.source.includes('*')))

  return (method, target, answer) => {
    const fault = faultOf(operationOf(method, target), answer, method === 'HEAD')
    if (fault) throw new Error(`${method} ${target}: ${fault}; ${answer.status} ${answer.text.slice(0, 300)}`)
  }

  function operationOf(method: string, target: string): Operation | undefined {
    const path = target.split(/[?#]/, 1)[0]!
    // Described once, for every method and every path below.
    if (/^\/v1\/verify(\/|$)/.test(path)) return document.paths['/v1/verify']?.get
    const found = paths.find(({ pattern }) => pattern.test(path))
    return found?.operations[method === 'HEAD' ? 'get' : method.toLowerCase()]
  }

  function faultOf(operation: Operation | undefined, answer: Answer, toHead: boolean): string | null {
    const { status, headers, body } = answer
    const type = headers.get('content-type')?.split(';', 1)[0] ?? null
    const code: string = body?.error?.code ?? ''
    if (operation === undefined) {
      const isFine = type !== 'application/json' || elsewhere.test(code) || ofAnyRequest.test(code)
      return isFine || toHead ? null : 'the document has no such operation'
    }
    const response = resolved(operation.responses[status])
    if (response === undefined) return `status ${status} is not described`
    const fault = headerFault(response, headers)
    if (fault !== null || toHead) return fault
    const media = response.content?.[type ?? '']
    if (media === undefined) return response.content || answer.text ? `type ${type} is not described` : null
    if (status >= 400 && media.examples && !(code in media.examples)) return `code ${code} is not described`
    return type === 'application/json' ? schemaFault(media.schema, body) : null
  }

  function headerFault({ headers: described }: Response, headers: Headers): string | null {
    for (const [name, { required, schema }] of Object.entries(described)) {
      const value = headers.get(name)
      if (value === null && required) return `no header ${name}`
      const fault =
        value === null ? null : schemaFault(schema, schema.type === 'integer' ? Number(value) : value)
      if (fault !== null) return `header ${name} ${fault}`
    }
    const others = [...headers.keys()].filter((name) => !ofTransport.includes(name) && !(name in described))
    return others.length > 0 ? `header ${others} is not described` : null
  }

  function schemaFault(schema: Schema, value: unknown): string | null {
    let validate = validators.get(schema)
    if (validate === undefined) {
      validate = ajv.compile(atRoot(schema))
      validators.set(schema, validate)
    }
    return validate(value) ? null : ajv.errorsText(validate.errors)
  }

  function resolved(response: Operation['responses'][string] | undefined): Response | undefined {
    if (response === undefined || !('$ref' in response)) return response
    return document.components.responses[response.$ref.replace(/^.*\//, '')]
  }
}

const patternOf = (path: string) =>
  new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{[a-z_]+\}/g, '[^/]*')}$`)

/** References lead into the document. */
const atRoot = (schema: Schema): Schema =>
  JSON.parse(JSON.stringify(schema).replaceAll('"$ref":"#/', '"$ref":"api#/'))

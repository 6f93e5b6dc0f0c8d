/** What the pages read from an API document. */
import type { OpenApiDocument, Operation, Response } from '../../../openapi/document-types.ts'

export interface PlacedOperation {
  method: string
  path: string
  operation: Operation
}

/** In the order of the routes. */
export const operationsOf = ({ paths }: OpenApiDocument): PlacedOperation[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  )

export function responseOf(
  { components }: OpenApiDocument,
  { responses }: Operation,
  status: string,
): Response {
  const response = responses[status]!
  return '$ref' in response ? components.responses[nameOf(response.$ref)]! : response
}

/** The last part of a reference. */
export const nameOf = ($ref: string) => $ref.slice($ref.lastIndexOf('/') + 1)

/** Ids of this service in examples, and the shell variables that stand for a reader's own. */
const variables: Record<string, string> = { apk_: 'KEY_ID', usr_: 'USER_ID' }

/** A command that works once the variables are set. `credential`: the variable with the token. */
export function curlOf(
  { method, path, operation }: PlacedOperation,
  { servers, components }: OpenApiDocument,
  credential: string,
): string {
  const { url } = servers[0]!
  const { parameters = [], requestBody, security } = operation
  const body = requestBody?.content['application/json']?.example
  const target = parameters
    .filter((parameter) => parameter.in === 'path')
    .reduce((path, { name, example }) => path.replace(`{${name}}`, variableOf(String(example))), path)
  const words = [
    ...(method === 'GET' || (method === 'POST' && body) ? [] : [`-X ${method}`]),
    target.includes('$') ? `"${url}${target}"` : url + target,
  ]
  const lines = [['curl -i', ...words].join(' ')]
  for (const scheme of Object.keys(security[0] ?? {})) {
    const { in: place, name = '' } = components.securitySchemes[scheme]!
    const token = scheme === 'metricsToken' ? 'METRICS_TOKEN' : credential
    const header = place === 'header' ? `${name}: $${shellName(name)}` : `Authorization: Bearer $${token}`
    lines.push(`-H "${header}"`)
  }
  if (body) lines.push(`-H 'Content-Type: application/json'`, `-d '${inShell(JSON.stringify(body))}'`)
  return lines.join(' \\\n  ')
}

const shellName = (header: string) => header.toUpperCase().replaceAll('-', '_')

const variableOf = (example: string) => `$${variables[example.slice(0, 4)] ?? 'ID'}`

/** JSON between single quotes of a shell, with the reader's own ids. */
const inShell = (json: string) =>
  json
    .replaceAll("'", `'\\''`)
    .replaceAll(/"((?:apk|usr)_[0-9a-z]+)"/g, (_, id: string) => `"'"${variableOf(id)}"'"`)

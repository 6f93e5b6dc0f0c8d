/**
 * The OpenAPI document of a listener, made from the schemas of its routes on first request.
 * Register this plugin before the routes.
 *
 * A route adds to its schema: `operationId`, `summary`, `tags`, the error codes that its handler
 * sends (`errors`), and headers of its success (`sends`). Everything else follows from the schemas.
 */
import { createRequire } from 'node:module'
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import type { FastifySchema, RouteOptions } from 'fastify'
import fp from 'fastify-plugin'
import { ErrorEnvelope } from '../../schemas/error.ts'
import type { ErrorCode } from '../../schemas/error-table.ts'
import type { HeaderName } from '../../schemas/header.ts'
import { version } from '../version.ts'
import { nameOf, type OpenApiDocument, type Operation, type Response, type Schema } from './document-types.ts'
import { exampleOf } from './example.ts'
import { alwaysSent, byStatus, errorCodesOf, errorResponse, headersOf, memberOf } from './responses.ts'

export interface OpenApiOptions {
  title: string
  description: string
  /** The name of each tag, with what its operations are about. */
  tags: Record<string, string>
  securitySchemes: OpenApiDocument['components']['securitySchemes']
  /**
   * Where the listener is reached, without a slash at the end. A function, because the port may be
   * known only after listening.
   */
  serverUrl: () => string
  /** The URL of the error pages, ending in a slash. */
  docsBase: () => string
  /** What a route needs and sends by its place on the listener. */
  placeOf: (route: Pick<RouteOptions, 'url' | 'config'>) => Place
}

export interface Place {
  security: Operation['security']
  /** Headers of each response once the request is authenticated. */
  headers: readonly HeaderName[]
  errors: readonly ErrorCode[]
}

declare module 'fastify' {
  interface FastifySchema {
    /** Codes that the handler itself sends. Those of any request, body or query follow by themselves. */
    errors?: readonly ErrorCode[]
    /** Headers of the success beside those of every response. */
    sends?: readonly HeaderName[]
  }
  interface FastifyInstance {
    openapi: () => OpenApiDocument
  }
}

/** An extension key: carries what completes an operation through @fastify/swagger. */
const carried = 'x-route'
/** The `$id` of a schema, which the library would drop. */
const schemaName = 'x-name'

export default fp<OpenApiOptions>(
  async (app, options) => {
    const routes: RouteOptions[] = []
    let document: OpenApiDocument | undefined
    app.addHook('onRoute', (route) => void routes.push(route))
    app.decorate('openapi', () => (document ??= generate(routes, settingsOf(options))))
  },
  { name: 'openapi' },
)

/**
 * Lets the library generate the document from our list of routes; normally it collects them itself.
 * Its hundred files are loaded only now, because most processes are never asked for a document.
 */
function generate(routes: RouteOptions[], settings: FastifyDynamicSwaggerOptions): OpenApiDocument {
  const swagger = createRequire(import.meta.url)('@fastify/swagger')
  let made: () => OpenApiDocument
  const app = {
    addHook(name: string, hook: (route: RouteOptions | (() => void)) => void) {
      if (name === 'onRoute') for (const route of routes) hook(route)
      if (name === 'onReady') hook(() => {})
    },
    decorate(_name: string, make: typeof made) {
      made = make
    },
    getSchemas: () => ({}),
  }
  swagger(app, settings, () => {})
  return made!()
}

function settingsOf(options: OpenApiOptions): FastifyDynamicSwaggerOptions {
  const { title, description, tags, securitySchemes, docsBase, serverUrl, placeOf } = options
  return {
    openapi: {
      openapi: '3.1.0',
      info: {
        title,
        description,
        version,
        license: { name: 'MIT', identifier: 'MIT' } as never,
      },
      tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
      components: { securitySchemes: securitySchemes as never },
    },
    convertConstToEnum: false,
    stripBasePath: false,
    transform: ({ schema, url, route }) => {
      if (!schema || schema.hide) return { schema: { hide: true }, url }
      return { schema: libraryForm(schema, placeOf(route)), url }
    },
    transformObject: (made) => {
      const document = ('openapiObject' in made ? made.openapiObject : {}) as unknown as OpenApiDocument
      return complete(document, serverUrl(), docsBase()) as never
    },
  }
}

/** The schema as the library wants it. */
function libraryForm(schema: FastifySchema, place: Place): FastifySchema {
  const { body, querystring, params, response = {}, errors = [], sends = [], ...operation } = schema
  const given = Object.entries(response as Record<string, Schema>).filter(([status]) =>
    /^[0-9]{3}$/.test(status),
  )
  return {
    ...operation,
    ...(body !== undefined && { body: json(body) }),
    ...(querystring !== undefined && { querystring: published(querystring) }),
    ...(params !== undefined && { params: published(params) }),
    response: Object.fromEntries(
      given.map(([status, schema]) => [
        status,
        schema.type === 'null' || 'content' in schema ? schema : json(schema),
      ]),
    ),
    security: place.security,
    [carried]: {
      codes: errorCodesOf(schema, [...place.errors, ...errors]),
      member: memberOf(schema),
      sends,
      headers: place.headers,
    },
  } as FastifySchema
}

const json = (schema: unknown) => ({ content: { 'application/json': { schema: published(schema) } } })

/**
 * A copy without what is ours alone: a `suggestion` joins the description, and `published` replaces
 * the rules for text in a query by those for what the text means.
 */
function published(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(published)
  if (typeof schema !== 'object' || schema === null) return schema
  const { $id, suggestion, published: replacement, ...rest } = schema as Schema
  const own = Object.entries(rest).map(([keyword, value]) => [keyword, published(value)])
  const copy: Schema = { ...($id !== undefined && { [schemaName]: $id }), ...Object.fromEntries(own) }
  // Members may have these names too; those are schemas.
  if (typeof suggestion === 'object') copy.suggestion = published(suggestion)
  if (typeof suggestion !== 'string') return copy
  const description = [copy.description, suggestion].filter(Boolean).join(' ')
  if (typeof replacement === 'object') return { description, ...replacement }
  return { ...copy, description }
}

/** A copy in which each schema with a name is a reference to the component of that name. */
function withReferences<T>(value: T, schemas: Record<string, Schema>): T {
  if (Array.isArray(value)) return value.map((one) => withReferences(one, schemas)) as T
  if (typeof value !== 'object' || value === null) return value
  const { [schemaName]: name, ...own } = value as Schema
  const copy = Object.fromEntries(
    Object.entries(own).map(([keyword, member]) => [keyword, withReferences(member, schemas)]),
  )
  if (name === undefined) return copy as T
  schemas[String(name)] = copy
  return { $ref: `#/components/schemas/${name}` } as T
}

function complete(made: OpenApiDocument, serverUrl: string, docsBase: string): OpenApiDocument {
  const schemas: Record<string, Schema> = {}
  const responses: Record<string, Response> = {}
  const document = withReferences(made, schemas)
  withReferences(published(ErrorEnvelope), schemas)
  document.components = { ...document.components, schemas, responses }
  document.servers = [{ url: serverUrl }]
  const operations = Object.values(document.paths).flatMap(Object.values) as Operation[]
  for (const operation of operations) completeOperation(operation)
  // A setting may leave out the only route with a scheme.
  const used = new Set(operations.flatMap(({ security }) => security.flatMap(Object.keys)))
  const { securitySchemes } = document.components
  for (const name of Object.keys(securitySchemes)) if (!used.has(name)) delete securitySchemes[name]
  return document

  function completeOperation(operation: Operation & { [carried]?: Carried }) {
    const { codes, member, headers, sends } = operation[carried]!
    delete operation[carried]
    const bodies = Object.values(operation.requestBody?.content ?? {})
    // Only where `{}` would do, a body may be left out.
    for (const { schema } of bodies) operation.requestBody!.required = !acceptsEmpty(resolved(schema))
    for (const response of Object.values(operation.responses) as Response[]) {
      if (response.content) response.description = operation.summary
      response.headers = headersOf([...alwaysSent, ...headers, ...sends], true)
      bodies.push(...Object.values(response.content ?? {}))
    }
    for (const media of bodies) media.example ??= exampleOf(media.schema, schemas, operation.operationId)
    for (const [status, ofStatus] of byStatus(codes)) {
      const response = errorResponse(ofStatus, headers, { member, docsBase })
      // Operations without a key send other headers.
      const isShared = ofStatus.length === 1 && operation.security.length > 0
      operation.responses[status] = isShared ? shared(ofStatus[0]!, response) : response
    }
  }

  function resolved(schema: Schema): Schema {
    return schema.$ref === undefined ? schema : schemas[nameOf(schema.$ref)]!
  }

  function shared(code: ErrorCode, response: Response) {
    const name = code.replace(/(^|_)([a-z])/g, (_, _start, letter: string) => letter.toUpperCase())
    responses[name] = response
    return { $ref: `#/components/responses/${name}` }
  }
}

const acceptsEmpty = ({ type, required = [], minProperties = 0 }: Schema) =>
  type === 'object' && required.length === 0 && minProperties === 0

interface Carried {
  codes: ErrorCode[]
  member: string
  headers: readonly HeaderName[]
  sends: readonly HeaderName[]
}

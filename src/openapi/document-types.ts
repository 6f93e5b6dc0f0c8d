/** As much of an OpenAPI 3.1 document as ours use. */
export interface Schema {
  $ref?: string
  type?: string | string[]
  description?: string
  enum?: unknown[]
  const?: unknown
  default?: unknown
  examples?: unknown[]
  properties?: Record<string, Schema>
  required?: string[]
  items?: Schema
  anyOf?: Schema[]
  [keyword: string]: unknown
}

/** The name of the component that a reference leads to. */
export const nameOf = ($ref: string) => $ref.slice($ref.lastIndexOf('/') + 1)

export interface MediaType {
  schema: Schema
  example?: unknown
  examples?: Record<string, { summary: string; value: unknown }>
}

export interface Header {
  description: string
  required: boolean
  schema: Schema
}

export interface Response {
  description: string
  headers: Record<string, Header>
  content?: Record<string, MediaType>
}

export interface Parameter {
  in: 'query' | 'path' | 'header'
  name: string
  required: boolean
  description?: string
  example?: unknown
  schema: Schema
}

export interface Operation {
  operationId: string
  summary: string
  description?: string
  tags: string[]
  security: Record<string, string[]>[]
  parameters?: Parameter[]
  requestBody?: { required: boolean; content: Record<string, MediaType> }
  responses: Record<string, Response | { $ref: string }>
}

export interface OpenApiDocument {
  openapi: string
  info: { title: string; description: string; version: string }
  servers: { url: string }[]
  tags: { name: string; description: string }[]
  paths: Record<string, Record<string, Operation>>
  components: {
    schemas: Record<string, Schema>
    responses: Record<string, Response>
    securitySchemes: Record<string, Record<string, string>>
  }
}

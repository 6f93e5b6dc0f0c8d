/** Examples of whole bodies, made from those of their members. */
import { nameOf, type Schema } from './document-types.ts'

/** Throws an error that names the member without one. `named`: the schemas behind `$ref`. */
export function exampleOf(schema: Schema, named: Record<string, Schema>, path: string): unknown {
  const {
    $ref,
    examples,
    const: only,
    enum: values,
    type,
    properties,
    items,
    anyOf,
    default: fallback,
  } = schema
  if ($ref !== undefined) {
    const name = nameOf($ref)
    return exampleOf(named[name]!, named, name)
  }
  const given = [examples?.[0], only, fallback, values?.[0]].find((value) => value !== undefined)
  if (given !== undefined) return given
  if (properties) {
    const members = Object.entries(properties)
    return Object.fromEntries(
      members.map(([name, member]) => [name, exampleOf(member, named, `${path}.${name}`)]),
    )
  }
  if (anyOf) return exampleOf(anyOf[0]!, named, path)
  if (items) return [exampleOf(items, named, `${path}[]`)]
  if (type === 'boolean') return false
  if (Array.isArray(type) && type.includes('null')) return null
  throw new Error(`${path} has no example: add \`examples: [...]\` to its schema in schemas/`)
}

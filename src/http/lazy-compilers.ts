/**
 * Fastify's own compilers of schemas, run when a request first needs one. Compiling every schema
 * takes a fifth of the time to start. Instead, the first request of a route waits a few milliseconds.
 */
import ajv, { type BuildCompilerFromPool } from '@fastify/ajv-compiler'
import stringify, { type SerializerFactory } from '@fastify/fast-json-stringify-compiler'

function once<T>(make: () => T): () => T {
  let made: T | undefined
  return () => (made ??= make())
}

const buildValidator: BuildCompilerFromPool = (schemas, options) => {
  const compiler = once(() => ajv()(schemas, options))
  return (route) => {
    const validator = once(() => compiler()(route) as Validator)
    const validate: Validator = (data) => {
      const isValid = validator()(data)
      validate.errors = validator().errors
      return isValid
    }
    return validate as ReturnType<ReturnType<BuildCompilerFromPool>>
  }
}

/** What Fastify uses of one: it reads the errors after a call. */
type Validator = ((data: unknown) => boolean) & { errors?: unknown }

const buildSerializer: SerializerFactory = (schemas, options) => {
  const compiler = once(() => stringify()(schemas, options))
  return (route) => {
    const serializer = once(() => compiler()(route))
    return (data) => serializer()(data)
  }
}

export const lazyCompilers = { buildValidator, buildSerializer }

/**
 * Fastify's own schema compilers, loaded when a request first needs one. Loading and running them at
 * the start took a third of its time. Now the first request of a route waits a few milliseconds, and
 * the first one that needs a compiler a few tens.
 */
import { createRequire } from 'node:module'
import type { AjvCompiler, BuildCompilerFromPool } from '@fastify/ajv-compiler'
import type { SerializerFactory, SerializerSelector } from '@fastify/fast-json-stringify-compiler'

const require = createRequire(import.meta.url)
const ajv = (): typeof AjvCompiler => require('@fastify/ajv-compiler')
const stringify = (): typeof SerializerSelector => require('@fastify/fast-json-stringify-compiler')

function once<T>(make: () => T): () => T {
  let made: T | undefined
  return () => (made ??= make())
}

const buildValidator: BuildCompilerFromPool = (schemas, options) => {
  const compiler = once(() => ajv()()(schemas, options))
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
  const compiler = once(() => stringify()()(schemas, options))
  return (route) => {
    const serializer = once(() => compiler()(route))
    return (data) => serializer()(data)
  }
}

export const lazyCompilers = { buildValidator, buildSerializer }

/** A text that is one of these values. */
import { type SchemaOptions, Type } from '@sinclair/typebox'

export const Enum = <const T extends string>(values: readonly T[], options: SchemaOptions = {}) =>
  Type.Unsafe<T>({ type: 'string', enum: values, ...options })

/** What every list has in common: a page of bounded size, and a cursor to the next one. */
import { type TSchema, Type } from '@sinclair/typebox'
import { listLimitMax } from './bounds.ts'
import { Enum } from './enum.ts'

export const Limit = Type.String({
  pattern: '^([1-9][0-9]?|100)$',
  published: { type: 'integer', minimum: 1, maximum: listLimitMax, default: listLimitMax },
  description: 'Entries in one page.',
  suggestion: `Send a whole number from 1 to ${listLimitMax}, once.`,
})

export const StartingAfter = Type.String({
  suggestion: 'Send the `next_cursor` of the previous page, once.',
})

export const OneOf = <const T extends string>(values: readonly T[], description?: string) =>
  Enum(values, {
    ...(description && { description }),
    suggestion: `Send one of ${values.join(', ')}, once.`,
  })

export const UnixSeconds = (description: string) =>
  Type.String({
    pattern: '^[0-9]{1,10}$',
    published: { type: 'integer', minimum: 0, maximum: 9_999_999_999 },
    description,
    suggestion: 'Send whole Unix seconds, once.',
  })

/** An id as a filter. As in a path, its shape is not checked: one that names nothing is the 404. */
export const IdFilter = (prefix: 'apk_' | 'usr_') =>
  Type.String({
    suggestion: `Send one id that begins with \`${prefix}\`.`,
  })

export const listOf = <T extends TSchema>(entry: T, $id: string) =>
  Type.Object(
    {
      object: Type.Literal('list'),
      data: Type.Array(entry),
      has_more: Type.Boolean(),
      next_cursor: Type.Unsafe<string | null>({
        type: ['string', 'null'],
        description: 'Send it as `starting_after` for the next page; null on the last one.',
      }),
    },
    { $id, additionalProperties: false },
  )

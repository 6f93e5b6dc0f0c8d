/** What every list has in common: a page of bounded size, and a cursor to the next one. */
import { type TProperties, Type } from '@sinclair/typebox'

export const listLimitMax = 100

export const Limit = Type.String({
  pattern: '^([1-9][0-9]?|100)$',
  description: 'Entries in one page.',
  suggestion: `Send a whole number from 1 to ${listLimitMax}, once.`,
})

export const StartingAfter = Type.String({
  description: 'The `next_cursor` of the previous page.',
  suggestion: 'Send the `next_cursor` of the previous page, once.',
})

/** An id as a filter. An id of another kind is a mistake, not an empty list. */
export const IdFilter = (prefix: 'apk_' | 'usr_' | 'req_') =>
  Type.String({
    pattern: `^${prefix}[0-9A-Za-z]{1,100}$`,
    suggestion: `Send one id that begins with \`${prefix}\`.`,
  })

export const listOf = <P extends TProperties>(members: P, $id: string) =>
  Type.Object(
    {
      object: Type.Literal('list'),
      data: Type.Array(Type.Object(members, { additionalProperties: false })),
      has_more: Type.Boolean(),
      next_cursor: Type.Unsafe<string | null>({ type: ['string', 'null'] }),
    },
    { $id, additionalProperties: false },
  )

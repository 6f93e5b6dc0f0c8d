/** Lists, page by page: what the routes of callers and those of operators have in common. */
import { listLimitMax } from '../../../schemas/bounds.ts'

export const limitOf = (query: { limit?: string }): number =>
  query.limit === undefined ? listLimitMax : Number(query.limit)

/** One page of a list, from one entry more than it may hold. */
export function pageOf<T>(found: T[], limit: number, cursorOf: (last: T) => string) {
  const data = found.slice(0, limit)
  const has_more = found.length > limit
  return { object: 'list' as const, data, has_more, next_cursor: has_more ? cursorOf(data.at(-1)!) : null }
}

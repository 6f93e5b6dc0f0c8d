/** Lists as async iterators: the next page is fetched when the entries of the last one are used up. */
import type { Call, Send } from './send.ts'

interface Page<T> {
  data: T[]
  next_cursor: string | null
}

export async function* pages<T>(send: Send, call: Call): AsyncGenerator<T, void, undefined> {
  let query = call.query
  for (;;) {
    const { data, next_cursor } = await send<Page<T>>({ ...call, query, isOurs: isPage })
    yield* data
    if (next_cursor === null) return
    query = { ...query, starting_after: next_cursor }
  }
}

/** Without a cursor, the first page would come again and again. */
function isPage(body: object): boolean {
  const { data, next_cursor } = body as Partial<Page<unknown>>
  return Array.isArray(data) && (next_cursor === null || typeof next_cursor === 'string')
}

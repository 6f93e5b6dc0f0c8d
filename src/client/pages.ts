/** Lists as async iterators: the next page is fetched when the entries of the last one are used up. */
import type { Call, Send } from './send.ts'

interface Page<T> {
  data: T[]
  next_cursor: string | null
}

export async function* pages<T>(send: Send, call: Call): AsyncGenerator<T, void, undefined> {
  let query = call.query
  for (;;) {
    const { data, next_cursor } = await send<Page<T>>({ ...call, query })
    yield* data
    if (next_cursor === null) return
    query = { ...query, starting_after: next_cursor }
  }
}

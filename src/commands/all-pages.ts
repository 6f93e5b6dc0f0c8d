/** For commands that print the whole of a list that comes in pages. */
import { listLimitMax } from '../../schemas/bounds.ts'

/** `list` resolves to null if there is nothing to start after, which ends the list too. */
export async function allPages<T extends { id: string }>(
  list: (page: { limit: number; startingAfter: string | undefined }) => Promise<T[] | null>,
): Promise<T[]> {
  const all: T[] = []
  for (;;) {
    const page = (await list({ limit: listLimitMax, startingAfter: all.at(-1)?.id })) ?? []
    all.push(...page)
    if (page.length < listLimitMax) return all
  }
}

// A command that lists prints the whole list, however many pages it has.
import t from 'tap'
import { listLimitMax } from '../../schemas/bounds.ts'
import { allPages } from '../../src/commands/all-pages.ts'

/** A list of so many, as the stores page it. */
const listOf = (count: number) => {
  const all = Array.from({ length: count }, (_, i) => ({ id: `apk_${i}` }))
  const asked: (string | undefined)[] = []
  const list = async ({ limit, startingAfter }: { limit: number; startingAfter: string | undefined }) => {
    asked.push(startingAfter)
    const from = all.findIndex(({ id }) => id === startingAfter) + 1
    return all.slice(from, from + limit)
  }
  return { all, asked, list }
}

for (const count of [0, 1, listLimitMax - 1, listLimitMax, 2 * listLimitMax + 1])
  t.test(`all of ${count}, in their order`, async (t) => {
    const { all, asked, list } = listOf(count)
    t.strictSame(await allPages(list), all)
    t.equal(asked.length, Math.floor(count / listLimitMax) + 1)
  })

t.test('a list whose last one is gone ends there', async (t) => {
  const { all, list } = listOf(listLimitMax)
  t.strictSame(await allPages(async (page) => (page.startingAfter === undefined ? list(page) : null)), all)
})

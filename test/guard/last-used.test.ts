// When keys were last used: gathered, written soon, and written again if it could not be.
import t from 'tap'
import { createLastUsed } from '../../src/guard/last-used.ts'
import { until } from '../process/until.ts'

/** The writing end: each write by hand where `held`, else at once. */
function writing({ held = false } = {}) {
  const writes: { uses: Map<string, number>; end(error?: Error): void }[] = []
  const modes: [boolean, string][] = []
  const sizes: number[] = []
  const lastUsed = createLastUsed({
    keys: {
      touch: (uses) =>
        new Promise((resolve, reject) => {
          const end = (error?: Error) => (error ? reject(error) : resolve())
          writes.push({ uses: new Map(uses), end })
          if (!held) end()
        }),
    },
    onBatch: (size) => sizes.push(size),
    onMode: (written, reason) => modes.push([written, reason]),
  })
  return { lastUsed, writes, modes, sizes }
}

t.test('uses are written by themselves, the latest of each key, in one statement', async (t) => {
  const { lastUsed, writes, sizes } = writing()
  lastUsed.note('apk_1', 100)
  lastUsed.note('apk_2', 200)
  lastUsed.note('apk_1', 102)
  lastUsed.note('apk_1', 101)
  t.strictSame(writes, [], 'not while requests are answered')
  await until('they are written', () => writes.length > 0)
  t.strictSame(
    [...writes[0]!.uses],
    [
      ['apk_1', 102],
      ['apk_2', 200],
    ],
  )
  t.strictSame(sizes, [2])
  await lastUsed.close()
  t.equal(writes.length, 1, 'nothing is written twice')
})

t.test('a use is pending until it is in Postgres', async (t) => {
  const { lastUsed, writes } = writing({ held: true })
  t.equal(lastUsed.pending()('apk_1'), null)
  lastUsed.note('apk_1', 100)
  t.equal(lastUsed.pending()('apk_1'), 100)
  await until('the next write', () => writes.length === 1)
  t.equal(lastUsed.pending()('apk_1'), 100, 'also while it is being written')
  lastUsed.note('apk_1', 105)
  t.equal(lastUsed.pending()('apk_1'), 105)
  writes[0]!.end()
  await until('the next write', () => writes.length === 2)
  t.equal(lastUsed.pending()('apk_1'), 105)
  writes[1]!.end()
  await until('it is written', () => lastUsed.pending()('apk_1') === null)
  t.equal(lastUsed.pending()('apk_2'), null)
  await lastUsed.close()
})

t.test('what was pending before a key is read is still told when it is written meanwhile', async (t) => {
  const { lastUsed } = writing()
  lastUsed.note('apk_1', 100)
  const pendingOf = lastUsed.pending()
  await until('it is written', () => lastUsed.pending()('apk_1') === null)
  t.equal(pendingOf('apk_1'), 100)
  t.equal(pendingOf('apk_2'), null)
  await lastUsed.close()
})

t.test('what could not be written is pending still, and written again with what came since', async (t) => {
  const { lastUsed, writes } = writing({ held: true })
  lastUsed.note('apk_1', 100)
  lastUsed.note('apk_2', 100)
  await until('the next write', () => writes.length === 1)
  lastUsed.note('apk_2', 103)
  lastUsed.note('apk_3', 104)
  writes[0]!.end(new Error('away'))
  await until('the next write', () => writes.length === 2)
  t.equal(lastUsed.pending()('apk_1'), 100)
  const again = [...writes[1]!.uses].sort()
  t.strictSame(again, [
    ['apk_1', 100],
    ['apk_2', 103],
    ['apk_3', 104],
  ])
  writes[1]!.end()
  await lastUsed.close()
})

t.test(
  'a failure to write last uses is reported once, with the reason, and so is the recovery',
  async (t) => {
    const { lastUsed, writes, modes } = writing({ held: true })
    lastUsed.note('apk_1', 100)
    for (const [i, fault] of ['away', 'still away', null, null, 'away again'].entries()) {
      await until('the next write', () => writes.length === i + 1)
      lastUsed.note('apk_2', 200 + i)
      writes[i]!.end(fault === null ? undefined : new Error(fault))
    }
    await until('all changes are reported', () => modes.length === 3)
    t.strictSame(modes, [
      [false, 'away'],
      [true, ''],
      [false, 'away again'],
    ])
    const closing = lastUsed.close()
    await until('the next write', () => writes.length === 6)
    writes[5]!.end()
    await closing
  },
)

t.test('closing writes what is pending, after what is being written, and stops', async (t) => {
  const { lastUsed, writes } = writing({ held: true })
  lastUsed.note('apk_1', 100)
  await until('the next write', () => writes.length === 1)
  lastUsed.note('apk_1', 101)
  let closed = false
  const closing = lastUsed.close().then(() => {
    closed = true
  })
  writes[0]!.end()
  await until('the next write', () => writes.length === 2)
  t.notOk(closed)
  t.strictSame([...writes[1]!.uses], [['apk_1', 101]])
  writes[1]!.end()
  await closing
})

t.test('closing does not wait for ever for a Postgres that is away', async (t) => {
  const { lastUsed, writes, modes } = writing({ held: true })
  lastUsed.note('apk_1', 100)
  const closing = lastUsed.close()
  await until('the next write', () => writes.length === 1)
  writes[0]!.end(new Error('away'))
  await closing
  t.strictSame(modes, [[false, 'away']])
})

t.test('many keys go in statements of bounded size, each key in one of them', async (t) => {
  const { lastUsed, writes } = writing()
  for (let i = 0; i < 12_345; i++) lastUsed.note(`apk_${i}`, i + 1)
  await lastUsed.close()
  t.ok(writes.every(({ uses }) => uses.size <= 5000))
  const written = writes.flatMap(({ uses }) => [...uses])
  t.equal(written.length, 12_345)
  t.ok(written.every(([id, atS]) => id === `apk_${atS - 1}`))
})

t.test('however many keys are used while Postgres is away, what is kept of them is bounded', async (t) => {
  const { lastUsed, writes } = writing()
  for (let i = 0; i < 250_000; i++) lastUsed.note(`apk_${i}`, 1)
  lastUsed.note('apk_0', 2)
  await lastUsed.close()
  const written = new Map(writes.flatMap(({ uses }) => [...uses]))
  t.ok(written.size >= 100_000 && written.size <= 200_000, `${written.size} keys`)
  t.equal(written.get('apk_0'), 2, 'a key that is noted is still brought up to date')
})

// When keys get their hash under the current secret. The test is Postgres.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { createRehashes } from '../../src/guard/rehashes.ts'
import { Unavailable } from '../../src/stores.ts'

t.test('hashes are stored 500 at a time, 10,000 may wait, and nobody hears of a failure', async (t) => {
  const writes: { size: number; secretId: string; end(error?: Error): void }[] = []
  const sizes: number[] = []
  const rehashes = createRehashes({
    keys: {
      rehash: (batch, secretId) =>
        new Promise((resolve, reject) => {
          writes.push({ size: batch.length, secretId, end: (error) => (error ? reject(error) : resolve()) })
        }),
    },
    secretId: 'second',
    onBatch: (size) => sizes.push(size),
  })
  for (let n = 0; n < 10_001; n++) rehashes.add({ id: `apk_${n}`, from: 'old', to: 'new' })
  await nextTurn()
  t.strictSame(sizes, [500], 'one write at a time')
  writes[0]!.end(new Unavailable('gone'))
  await nextTurn()
  await nextTurn()
  for (let n = 1; n < 20; n++) {
    t.match(writes[n], { size: 500, secretId: 'second' })
    writes[n]!.end()
    await nextTurn()
    await nextTurn()
  }
  await rehashes.drained()
  t.equal(writes.length, 20)
})

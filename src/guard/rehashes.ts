/** Moves keys in use from HASH_SECRET_PREVIOUS to HASH_SECRET, in batches, in the background. */
import type { KeyStore, Rehash } from '../stores.ts'
import { createBatcher } from './batcher.ts'

export interface Rehashes {
  /** Best effort: a key that could not be stored is reported again when it is next read. */
  add(rehash: Rehash): void
  drained(): Promise<void>
}

const batchMax = 500
const queueMax = 10_000
const timeoutMs = 5000

export function createRehashes(options: {
  keys: Pick<KeyStore, 'rehash'>
  /** The id of HASH_SECRET. */
  secretId: string
  onBatch: (size: number) => void
}): Rehashes {
  const { keys, secretId, onBatch } = options
  const batcher = createBatcher<Rehash, undefined>({
    name: 'Postgres (background)',
    batchMax,
    inFlightMax: 1,
    queueMax,
    timeoutMs,
    onBatch,
    async run(batch) {
      await keys.rehash(batch, secretId)
      return batch.map(() => undefined)
    },
  })
  return {
    add: (rehash) => void batcher.add(rehash).catch(() => {}),
    drained: () => batcher.drained(),
  }
}

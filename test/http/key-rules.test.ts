// What the routes of callers and those of operators have in common.
import t from 'tap'
import { withPendingUses } from '../../src/http/routes/key-rules.ts'
import type { StoredKey } from '../../src/stores.ts'

t.test('a key shows the later of its stored last use and the one still to be stored', async (t) => {
  for (const [pending, stored, shown] of [
    [null, 90, 90],
    [null, null, null],
    [100, null, 100],
    [100, 90, 100],
    // Another instance has stored a later one meanwhile.
    [100, 110, 110],
  ]) {
    const lastUsed = { pending: () => () => pending ?? null }
    const toBody = withPendingUses(lastUsed, ({ lastUsedAt }) => lastUsedAt)
    t.equal(toBody({ id: 'apk_1', lastUsedAt: stored } as StoredKey), shown, `${pending}, ${stored}`)
  }
})

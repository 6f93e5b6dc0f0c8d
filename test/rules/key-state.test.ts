// What state a key is in, and why it may not be used.
import fc from 'fast-check'
import t from 'tap'
import { denialReason, keyState } from '../../src/rules/key-state.ts'

t.test('a key is active until it is revoked or expires', async (t) => {
  t.equal(keyState({ revokedAt: null, expiresAt: null }, 1000), 'active')
  t.equal(keyState({ revokedAt: 1, expiresAt: null }, 1000), 'revoked')
  t.equal(keyState({ revokedAt: null, expiresAt: 1001 }, 1000), 'active')
  t.equal(keyState({ revokedAt: null, expiresAt: 999 }, 1000), 'expired')
})

t.test('a key is expired from the second of its expiry on', async (t) => {
  t.equal(keyState({ revokedAt: null, expiresAt: 1000 }, 999), 'active')
  t.equal(keyState({ revokedAt: null, expiresAt: 1000 }, 999.999), 'active')
  t.equal(keyState({ revokedAt: null, expiresAt: 1000 }, 1000), 'expired')
})

t.test('a revoked key stays revoked when it would have expired', async (t) => {
  t.equal(keyState({ revokedAt: 5, expiresAt: 10 }, 7), 'revoked')
  t.equal(keyState({ revokedAt: 5, expiresAt: 10 }, 1000), 'revoked')
  t.equal(keyState({ revokedAt: 0, expiresAt: null }, 1000), 'revoked', 'also at second 0')
})

t.test('the reasons are looked for in the order revoked, expired, owner deleted', async (t) => {
  const [revokedAt, expiresAt, ownerDeleted] = [1, 2, true]
  t.equal(denialReason({ revokedAt, expiresAt, ownerDeleted }, 1000), 'revoked')
  t.equal(denialReason({ revokedAt: null, expiresAt, ownerDeleted }, 1000), 'expired')
  t.equal(denialReason({ revokedAt: null, expiresAt: null, ownerDeleted }, 1000), 'owner_deleted')
  t.equal(denialReason({ revokedAt: null, expiresAt: null, ownerDeleted: false }, 1000), null)
})

t.test('a key is usable exactly if it is active and its owner is there', async (t) => {
  const moment = fc.option(fc.integer({ min: 0, max: 100 }))
  fc.assert(
    fc.property(
      moment,
      moment,
      fc.boolean(),
      fc.integer({ min: 0, max: 100 }),
      (revokedAt, expiresAt, ownerDeleted, nowS) => {
        const usable = denialReason({ revokedAt, expiresAt, ownerDeleted }, nowS) === null
        const expected = revokedAt === null && (expiresAt === null || nowS < expiresAt) && !ownerDeleted
        return usable === expected
      },
    ),
  )
  t.pass('for every combination tried')
})

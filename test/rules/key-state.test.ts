// What state a key is in, and why it may not be used.
import fc from 'fast-check'
import t from 'tap'
import { denialReason, keyState } from '../../src/rules/key-state.ts'

t.test('a key is active until it is revoked, or until the second of its expiry', async (t) => {
  t.equal(keyState({ revokedAt: null, expiresAt: null }, 1000), 'active')
  t.equal(keyState({ revokedAt: null, expiresAt: 1000 }, 999.999), 'active')
  t.equal(keyState({ revokedAt: null, expiresAt: 1000 }, 1000), 'expired')
  t.equal(keyState({ revokedAt: 1, expiresAt: null }, 1000), 'revoked')
  t.equal(keyState({ revokedAt: 0, expiresAt: null }, 1000), 'revoked', 'at second 0 too')
})

t.test('a revoked key stays revoked after its expiry', async (t) => {
  t.equal(keyState({ revokedAt: 5, expiresAt: 10 }, 7), 'revoked')
  t.equal(keyState({ revokedAt: 5, expiresAt: 10 }, 1000), 'revoked')
})

t.test('the reasons are checked in the order revoked, expired, owner deleted', async (t) => {
  const [revokedAt, expiresAt, ownerDeleted] = [1, 2, true]
  t.equal(denialReason({ revokedAt, expiresAt, ownerDeleted }, 1000), 'revoked')
  t.equal(denialReason({ revokedAt: null, expiresAt, ownerDeleted }, 1000), 'expired')
  t.equal(denialReason({ revokedAt: null, expiresAt: null, ownerDeleted }, 1000), 'owner_deleted')
})

t.test('a key is usable exactly if it is active and its owner is not deleted', async () => {
  const second = fc.integer({ min: 0, max: 100 })
  fc.assert(
    fc.property(
      fc.record({ revokedAt: fc.option(second), expiresAt: fc.option(second), ownerDeleted: fc.boolean() }),
      second,
      (key, nowS) => {
        const isActive = key.revokedAt === null && (key.expiresAt === null || nowS < key.expiresAt)
        return (denialReason(key, nowS) === null) === (isActive && !key.ownerDeleted)
      },
    ),
  )
})

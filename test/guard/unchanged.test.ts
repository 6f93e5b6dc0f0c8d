// What a reply about changed keys says of a cached copy. The test sets the clock.
import t, { type Test } from 'tap'
import { createUnchanged } from '../../src/guard/unchanged.ts'
import type { KeyChanges } from '../../src/stores.ts'
import { setClock } from '../clock.ts'
import { cachedKey } from './gated.ts'

function open(t: Test) {
  const clock = setClock(t)
  const unchanged = createUnchanged()
  let replies = 0
  /** Asks, and gets the reply 10 ms later. */
  function ask(changed: string[] | null, more: Partial<KeyChanges> = {}) {
    const askedAtMs = performance.now()
    clock.advance(10)
    const known = String(++replies)
    unchanged.learn({ server: '1', nowS: 5000, known, changed, ...more }, askedAtMs)
    return askedAtMs
  }
  const copy = (more = {}) => cachedKey({ readAtMs: performance.now(), ...more })
  /** When the copy counts as read. */
  function renewed(key = copy()) {
    unchanged.renew(key)
    return key.readAtMs
  }
  /** A copy read after a first reply. */
  function known(more = {}) {
    ask(null)
    clock.advance(1)
    const key = copy(more)
    clock.advance(1000)
    return key
  }
  return { clock, unchanged, ask, copy, renewed, known }
}

t.test('a copy of a key that has not changed counts as read when the instance asked', (t) => {
  const { unchanged, ask, renewed, known, clock } = open(t)
  const key = known({ expiresAt: 5003 })
  for (let n = 0; n < 3; n++) {
    const askedAtMs = ask([])
    t.equal(unchanged.latest.asOfMs, askedAtMs)
    t.equal(renewed(key), askedAtMs)
    t.equal(
      key.expiresAtMonoMs,
      askedAtMs + 3000 / 1.04,
      'with the time that Postgres had then, if our clock is slow',
    )
    clock.advance(1000)
  }
  ask(['apk_2', 'usr_2'])
  t.equal(renewed(key), unchanged.latest.asOfMs, 'others have changed')
  t.end()
})

t.test('a reply does not make a copy older', (t) => {
  const { clock, ask, renewed, copy, known } = open(t)
  known()
  ask([])
  clock.advance(1)
  const key = copy()
  t.equal(renewed(key), performance.now())
  t.end()
})

t.test('each question is about what has changed since the last reply', (t) => {
  const { unchanged, ask } = open(t)
  t.equal(unchanged.since(), null)
  ask(null)
  t.equal(unchanged.since(), '1')
  ask([])
  t.equal(unchanged.since(), '2')
  t.end()
})

for (const changed of ['apk_1', 'usr_1'])
  t.test(`a change of ${changed} leaves copies alone that may lack it, until they are read again`, (t) => {
    const { clock, ask, renewed, copy, known } = open(t)
    const before = known()
    const { readAtMs } = before
    const during = copy()
    ask([changed])
    const atReply = copy()
    clock.advance(1)
    const after = copy()
    for (let n = 0; n < 2; n++) {
      clock.advance(1000)
      const askedAtMs = ask([])
      t.equal(renewed(before), readAtMs)
      t.ok(renewed(during) < askedAtMs, 'a read that began while the question was under way')
      t.ok(renewed(atReply) < askedAtMs)
      t.equal(renewed(after), askedAtMs)
    }
    t.end()
  })

t.test('what was read before the first reply is left alone: its changes are unknown', (t) => {
  const { clock, ask, renewed, copy } = open(t)
  const key = copy()
  const { readAtMs } = key
  ask(null)
  const atReply = copy()
  t.equal(renewed(key), readAtMs)
  clock.advance(1000)
  const askedAtMs = ask([])
  t.equal(renewed(key), readAtMs)
  t.ok(renewed(atReply) < askedAtMs)
  t.end()
})

t.test('a reply that knows of no changes is a first one', (t) => {
  const { clock, ask, renewed, copy, known } = open(t)
  const before = known()
  const { readAtMs } = before
  ask(null)
  t.equal(renewed(before), readAtMs)
  clock.advance(1)
  const after = copy()
  clock.advance(1000)
  const askedAtMs = ask([])
  t.equal(renewed(before), readAtMs)
  t.equal(renewed(after), askedAtMs)
  t.end()
})

t.test('a copy is left alone that another server, or one without writes, has given', (t) => {
  const { ask, renewed, known } = open(t)
  for (const server of ['2', '']) {
    const key = known({ server })
    const { readAtMs } = key
    ask([])
    t.equal(renewed(key), readAtMs)
  }
  t.end()
})

t.test('beyond ten thousand changes, every copy is read again', (t) => {
  const { clock, ask, renewed, copy, known } = open(t)
  const key = known()
  const ids = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `apk_x${from + n}`)
  const askedAtMs = ask(ids(10_000))
  t.equal(renewed(key), askedAtMs)
  clock.advance(1000)
  ask(ids(1, 10_000))
  t.equal(renewed(key), askedAtMs)
  clock.advance(1)
  const later = copy()
  clock.advance(1000)
  const laterMs = ask(ids(10_000))
  t.equal(renewed(later), laterMs, 'and the count begins again')
  t.end()
})

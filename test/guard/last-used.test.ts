// When keys were last used: collected, written soon, and written again if that failed. The test sets
// the clock.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { createLastUsed } from '../../src/guard/last-used.ts'
import { setClock } from '../clock.ts'
import { cachedKey } from './gated.ts'

/** `held`: the test ends each write itself. */
function open(t: Test, { held = false } = {}) {
  const clock = setClock(t)
  const writes: { uses: Record<string, number>; skipsLocked: boolean; end(error?: Error): void }[] = []
  /** Keys that are as the writer knows them, and those whose rows somebody holds. */
  const [confirmed, locked]: [string[], string[]] = [[], []]
  const modes: string[] = []
  const sizes: number[] = []
  const lastUsed = createLastUsed({
    keys: {
      touch: (given, { skipsLocked = false } = {}) =>
        new Promise((resolve, reject) => {
          const uses = Object.fromEntries(given.map(({ key, atS }) => [key.id, atS]))
          const of = (ids: string[]) => ids.filter((id) => id in uses)
          const end = (error?: Error) =>
            error
              ? reject(error)
              : resolve({ confirmed: of(confirmed), skipped: of(locked), nowS: 1000, server: '1' })
          writes.push({ uses, skipsLocked, end })
          if (!held) end()
        }),
    },
    onBatch: (size) => sizes.push(size),
    onFault: (error) => modes.push(error?.message ?? 'written'),
  })
  const note = (id: string, atS: number) => lastUsed.note(cachedKey({ id }), atS)
  const pendingOf = (keyId: string) => lastUsed.pending()(keyId)
  /** Ends the last write, and lets the next one begin. */
  const next = async (error?: Error) => {
    writes.at(-1)?.end(error)
    await nextTurn()
    clock.advance(100)
    await nextTurn()
  }
  return { lastUsed, note, pendingOf, writes, confirmed, locked, modes, sizes, clock, next }
}

t.test('uses are written within a second, the latest of each key, in one statement', async (t) => {
  const { lastUsed, note, writes, sizes, clock } = open(t)
  note('apk_1', 100)
  note('apk_2', 200)
  note('apk_1', 102)
  note('apk_1', 101)
  clock.advance(99)
  t.strictSame(writes, [], 'not while requests are answered')
  clock.advance(1)
  t.strictSame(writes[0]!.uses, { apk_1: 102, apk_2: 200 })
  t.strictSame(sizes, [2])
  await nextTurn()
  t.equal(clock.countTimers(), 0, 'there is no timer without a use')
  await lastUsed.close()
  t.equal(writes.length, 1, 'nothing is written twice')
  note('apk_1', 103)
  t.equal(clock.countTimers(), 0, 'nor later')
})

t.test('a use is pending until it is in Postgres, and one write follows another', async (t) => {
  const { lastUsed, note, pendingOf, writes, clock, next } = open(t, { held: true })
  t.equal(pendingOf('apk_1'), null)
  note('apk_1', 100)
  t.equal(pendingOf('apk_1'), 100)
  await next()
  t.equal(pendingOf('apk_1'), 100, 'also while it is being written')
  note('apk_1', 105)
  t.equal(pendingOf('apk_1'), 105)
  clock.advance(100)
  t.equal(writes.length, 1, 'there is no timer during a write')
  await next()
  t.equal(writes.length, 2)
  t.equal(pendingOf('apk_1'), 105)
  const beforeTheWrite = lastUsed.pending()
  await next()
  t.equal(pendingOf('apk_1'), null)
  t.equal(beforeTheWrite('apk_1'), 105, 'a reading that began before the write still shows it')
  t.equal(beforeTheWrite('apk_2'), null)
})

t.test('what could not be written stays pending, and is written again with what came since', async (t) => {
  const { note, pendingOf, writes, next } = open(t, { held: true })
  note('apk_1', 100)
  note('apk_2', 100)
  await next()
  note('apk_2', 103)
  note('apk_3', 104)
  await next(new Error('down'))
  t.equal(pendingOf('apk_1'), 100)
  t.strictSame(writes[1]!.uses, { apk_1: 100, apk_2: 103, apk_3: 104 })
})

t.test('after a failure, rows that somebody holds are skipped until they are free', async (t) => {
  const { note, pendingOf, writes, locked, modes, next } = open(t, { held: true })
  note('apk_1', 100)
  note('apk_2', 100)
  await next()
  await next(new Error('statement timeout'))
  locked.push('apk_1')
  await next()
  t.equal(pendingOf('apk_2'), null)
  t.equal(pendingOf('apk_1'), 100)
  locked.pop()
  await next()
  note('apk_3', 101)
  await next()
  t.strictSame(
    writes.map(({ uses, skipsLocked }) => [Object.keys(uses).join(' '), skipsLocked]),
    [
      ['apk_1 apk_2', false],
      ['apk_1 apk_2', true],
      ['apk_1', true],
      ['apk_3', false],
    ],
  )
  t.strictSame(modes, ['statement timeout', 'written'])
})

t.test(
  'a copy is renewed if Postgres has the key as it is there, as of the start of the write',
  async (t) => {
    const { lastUsed, writes, confirmed, clock, next } = open(t, { held: true })
    // The write.
    const beganMs = performance.now() + 100
    const copies = {
      apk_same: cachedKey({ readAtMs: beganMs - 4000, expiresAt: 1005, expiresAtMonoMs: 1 }),
      apk_changed: cachedKey({ readAtMs: beganMs - 4000 }),
      apk_staleHash: cachedKey({ readAtMs: beganMs - 4000, hasStaleHash: true }),
      apk_readMeanwhile: cachedKey({ readAtMs: beganMs + 10, expiresAt: 1005, expiresAtMonoMs: 2 }),
    }
    for (const [id, copy] of Object.entries(copies)) lastUsed.note(Object.assign(copy, { id }), 100)
    confirmed.push('apk_same', 'apk_staleHash', 'apk_readMeanwhile')
    await next()
    clock.advance(300)
    writes[0]!.end()
    await nextTurn()
    t.match(copies, {
      apk_same: { readAtMs: beganMs, expiresAtMonoMs: beganMs + 5000 / 1.04 },
      apk_changed: { readAtMs: beganMs - 4000 },
      apk_staleHash: { readAtMs: beganMs - 4000 },
      apk_readMeanwhile: { readAtMs: beganMs + 10, expiresAtMonoMs: 2 },
    })
  },
)

t.test('a failure to write is reported once, with the reason, and so is the recovery', async (t) => {
  const { note, modes, next } = open(t, { held: true })
  note('apk_1', 100)
  await next()
  for (const [i, fault] of ['down', 'still down', null, null, 'down again'].entries()) {
    note('apk_2', 200 + i)
    await next(fault === null ? undefined : new Error(fault))
  }
  await next(new Error('still'))
  t.strictSame(modes, ['down', 'written', 'down again'])
})

t.test('closing waits for the write under way, then writes what is pending', async (t) => {
  const { lastUsed, note, writes, next } = open(t, { held: true })
  note('apk_1', 100)
  await next()
  note('apk_1', 101)
  let closed = false
  const closing = lastUsed.close().then(() => {
    closed = true
  })
  await nextTurn()
  t.equal(writes.length, 1)
  writes[0]!.end()
  await nextTurn()
  t.notOk(closed)
  t.strictSame(writes[1]!.uses, { apk_1: 101 })
  writes[1]!.end()
  await closing
})

t.test('closing tries only once to write to a Postgres that is down', async (t) => {
  const { lastUsed, note, writes, modes, clock } = open(t, { held: true })
  note('apk_1', 100)
  const closing = lastUsed.close()
  await nextTurn()
  writes[0]!.end(new Error('down'))
  await closing
  t.equal(writes.length, 1)
  t.equal(clock.countTimers(), 0, 'and leaves no timer')
  t.strictSame(modes, ['down'])
})

t.test(
  'many keys go in statements of bounded size, each key in one of them, neighbours in others',
  async (t) => {
    const { lastUsed, note, writes } = open(t)
    for (let i = 0; i < 12_501; i++) note(`apk_${i}`, i + 1)
    await lastUsed.close()
    const statements = writes.map(({ uses }) => Object.entries(uses))
    t.ok(statements.every((uses) => uses.length <= 500))
    t.ok(statements.length < 12_501 / 400, 'no more statements than that takes')
    const times = statements.map((uses) => uses.map(([, atS]) => atS))
    t.ok(times.every((some) => some.every((atS, i) => i === 0 || atS - some[i - 1]! > 20)))
    const written = statements.flat()
    t.equal(written.length, 12_501)
    t.ok(written.every(([id, atS]) => id === `apk_${atS - 1}`))
  },
)

t.test('however many keys are used while Postgres is down, memory is bounded', async (t) => {
  const { lastUsed, note, writes } = open(t)
  for (let i = 0; i < 250_000; i++) note(`apk_${i}`, 1)
  note('apk_0', 2)
  await lastUsed.close()
  const written = new Map(writes.flatMap(({ uses }) => Object.entries(uses)))
  t.ok(written.size >= 100_000 && written.size <= 200_000, `${written.size} keys`)
  t.equal(written.get('apk_0'), 2, 'a noted key is still updated')
})

// When keys were last used: collected, written soon, and written again if that failed. The test
// runs the timer.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { createLastUsed } from '../../src/guard/last-used.ts'

/** `held`: the test ends each write itself. */
function open(t: Test, { held = false } = {}) {
  const timer = { everyMs: 0, run: () => {}, unref() {} }
  t.intercept(globalThis, 'setInterval', {
    value: (run: () => void, everyMs: number) => Object.assign(timer, { run, everyMs }),
  })
  t.intercept(globalThis, 'clearInterval', {
    value: () => {
      timer.everyMs = 0
    },
  })
  const writes: { uses: Record<string, number>; skipsLocked: boolean; end(error?: Error): void }[] = []
  /** Keys whose rows somebody holds. */
  const locked: string[] = []
  const modes: string[] = []
  const sizes: number[] = []
  const lastUsed = createLastUsed({
    keys: {
      touch: (uses, { skipsLocked = false } = {}) =>
        new Promise((resolve, reject) => {
          const end = (error?: Error) =>
            error ? reject(error) : resolve(locked.filter((id) => uses.has(id)))
          writes.push({ uses: Object.fromEntries(uses), skipsLocked, end })
          if (!held) end()
        }),
    },
    onBatch: (size) => sizes.push(size),
    onMode: (written, reason) => modes.push(written ? `written${reason}` : reason),
  })
  const pendingOf = (keyId: string) => lastUsed.pending()(keyId)
  /** Ends the last write, and has the timer begin the next one. */
  const next = async (error?: Error) => {
    writes.at(-1)?.end(error)
    await nextTurn()
    timer.run()
    await nextTurn()
  }
  return { lastUsed, pendingOf, writes, locked, modes, sizes, timer, next }
}

t.test('uses are written within a second, the latest of each key, in one statement', async (t) => {
  const { lastUsed, writes, sizes, timer, next } = open(t)
  t.equal(timer.everyMs, 100)
  lastUsed.note('apk_1', 100)
  lastUsed.note('apk_2', 200)
  lastUsed.note('apk_1', 102)
  lastUsed.note('apk_1', 101)
  t.strictSame(writes, [], 'not while requests are answered')
  await next()
  t.strictSame(writes[0]!.uses, { apk_1: 102, apk_2: 200 })
  t.strictSame(sizes, [2])
  await lastUsed.close()
  t.equal(writes.length, 1, 'nothing is written twice')
  t.equal(timer.everyMs, 0, 'the timer is stopped')
})

t.test('a use is pending until it is in Postgres, and one write follows another', async (t) => {
  const { lastUsed, pendingOf, writes, timer, next } = open(t, { held: true })
  t.equal(pendingOf('apk_1'), null)
  lastUsed.note('apk_1', 100)
  t.equal(pendingOf('apk_1'), 100)
  await next()
  t.equal(pendingOf('apk_1'), 100, 'also while it is being written')
  lastUsed.note('apk_1', 105)
  t.equal(pendingOf('apk_1'), 105)
  timer.run()
  t.equal(writes.length, 1)
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
  const { lastUsed, pendingOf, writes, next } = open(t, { held: true })
  lastUsed.note('apk_1', 100)
  lastUsed.note('apk_2', 100)
  await next()
  lastUsed.note('apk_2', 103)
  lastUsed.note('apk_3', 104)
  await next(new Error('down'))
  t.equal(pendingOf('apk_1'), 100)
  t.strictSame(writes[1]!.uses, { apk_1: 100, apk_2: 103, apk_3: 104 })
})

t.test('after a failure, rows that somebody holds are skipped until they are free', async (t) => {
  const { lastUsed, pendingOf, writes, locked, modes, next } = open(t, { held: true })
  lastUsed.note('apk_1', 100)
  lastUsed.note('apk_2', 100)
  await next()
  await next(new Error('statement timeout'))
  locked.push('apk_1')
  await next()
  t.equal(pendingOf('apk_2'), null)
  t.equal(pendingOf('apk_1'), 100)
  locked.pop()
  await next()
  lastUsed.note('apk_3', 101)
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

t.test('a failure to write is reported once, with the reason, and so is the recovery', async (t) => {
  const { lastUsed, modes, next } = open(t, { held: true })
  lastUsed.note('apk_1', 100)
  await next()
  for (const [i, fault] of ['down', 'still down', null, null, 'down again'].entries()) {
    lastUsed.note('apk_2', 200 + i)
    await next(fault === null ? undefined : new Error(fault))
  }
  await next(new Error('still'))
  t.strictSame(modes, ['down', 'written', 'down again'])
})

t.test('closing waits for the write under way, then writes what is pending', async (t) => {
  const { lastUsed, writes, next } = open(t, { held: true })
  lastUsed.note('apk_1', 100)
  await next()
  lastUsed.note('apk_1', 101)
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
  const { lastUsed, writes, modes } = open(t, { held: true })
  lastUsed.note('apk_1', 100)
  const closing = lastUsed.close()
  await nextTurn()
  writes[0]!.end(new Error('down'))
  await closing
  t.equal(writes.length, 1)
  t.strictSame(modes, ['down'])
})

t.test(
  'many keys go in statements of bounded size, each key in one of them, neighbours in others',
  async (t) => {
    const { lastUsed, writes } = open(t)
    for (let i = 0; i < 12_345; i++) lastUsed.note(`apk_${i}`, i + 1)
    await lastUsed.close()
    const statements = writes.map(({ uses }) => Object.entries(uses))
    t.ok(statements.every((uses) => uses.length <= 500))
    t.ok(statements.length < 12_345 / 400, 'no more statements than that takes')
    const times = statements.map((uses) => uses.map(([, atS]) => atS))
    t.ok(times.every((some) => some.every((atS, i) => i === 0 || atS - some[i - 1]! > 20)))
    const written = statements.flat()
    t.equal(written.length, 12_345)
    t.ok(written.every(([id, atS]) => id === `apk_${atS - 1}`))
  },
)

t.test('however many keys are used while Postgres is down, memory is bounded', async (t) => {
  const { lastUsed, writes } = open(t)
  for (let i = 0; i < 250_000; i++) lastUsed.note(`apk_${i}`, 1)
  lastUsed.note('apk_0', 2)
  await lastUsed.close()
  const written = new Map(writes.flatMap(({ uses }) => Object.entries(uses)))
  t.ok(written.size >= 100_000 && written.size <= 200_000, `${written.size} keys`)
  t.equal(written.get('apk_0'), 2, 'a noted key is still updated')
})

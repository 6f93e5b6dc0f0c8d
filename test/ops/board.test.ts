// One scan of the counters for everybody who looks, and none when nobody does. Counters in memory.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { install } from '@sinonjs/fake-timers'
import t from 'tap'
import { createMemoryCounter } from '../../src/memory/counter.ts'
import { createBoard } from '../../src/ops/board.ts'
import { type Counter, type Instance, type KeyCount, type KeyStore, Unavailable } from '../../src/stores.ts'

const clock = install({
  toFake: ['setTimeout', 'clearTimeout', 'performance'],
  shouldClearNativeTimers: true,
})
t.teardown(() => clock.uninstall())

/** A board whose scans the test lets go on, over two counters of 7 and 9 in minute 100. */
function openBoard() {
  let nowMs = 100 * 60_000
  const memory = createMemoryCounter({ now: () => nowMs })
  const count = (keyId: string, hits: number) => {
    for (let i = 0; i < hits; i++) memory.hit(keyId, () => {})
  }
  count('apk_1', 7)
  count('apk_2', 9)
  const scans: { minute: number; signal: AbortSignal; share: () => number; goOn: () => void }[] = []
  let held = false
  const scan: Counter['scan'] = async (minute, visit, options = {}) => {
    const share = options.share as () => number
    const going = new Promise<void>((goOn) => scans.push({ minute, signal: options.signal!, share, goOn }))
    if (!held) scans.at(-1)!.goOn()
    await going
    return memory.scan(minute, visit, options)
  }
  const limits: Record<string, number> = { apk_1: 10, apk_2: 90 }
  let isDown = false
  /** How many counts were ranked each time. */
  const ranked: number[] = []
  const rank: KeyStore['rank'] = async (counts, { limit }) => {
    ranked.push(counts.length)
    if (isDown) throw new Unavailable('down')
    const share = ({ keyId, count }: KeyCount) => count / (limits[keyId] ?? 1000)
    const highest = (heightOf: (one: KeyCount) => number) =>
      [...counts].sort((a, b) => heightOf(b) - heightOf(a)).slice(0, limit)
    return [...new Set([...highest(({ count }) => count), ...highest(share)])].map(
      ({ keyId: id, count: used }) => ({
        ...{ id, used, name: id, displayPrefix: 'lk_1234567', userId: 'usr_1', userName: 'Ada' },
        rateLimitRpm: limits[id] ?? 1000,
      }),
    )
  }
  /** What this instance knows without a scan. */
  const known = new Map<string, number>()
  const listed: Pick<Instance, 'counting' | 'silentS'>[] = []
  const board = createBoard({
    ...{ counter: { ...memory, scan, known: () => known }, keys: { rank } },
    instances: { list: async () => listed as Instance[] },
  })
  return {
    listed,
    board,
    known,
    scans,
    limits,
    ranked,
    count,
    async read(which: 'current' | 'last', by: 'used' | 'share' = 'used') {
      const { keys, ...about } = await board.read(which, 'operator:ada')
      return { ...about, keys: keys[by] }
    },
    setDown: (down: boolean) => {
      isDown = down
    },
    hold: () => {
      held = true
    },
    setMinute: (minute: number, passedMs = 1) => {
      nowMs = minute * 60_000 + passedMs
    },
  }
}

const used = ({ keys }: { keys: { id: string; used: number }[] }) =>
  keys.map(({ id, used }) => `${id} ${used}`)

t.test('everybody who asks within a second shares a scan', async (t) => {
  const { read, scans, ranked, count } = openBoard()
  const views = await Promise.all([read('current'), read('current'), read('current', 'share')])
  t.equal(scans.length, 1)
  t.equal(ranked.length, 1, 'and a ranking, in either order')
  t.strictSame(views.map(used), [
    ['apk_2 9', 'apk_1 7'],
    ['apk_2 9', 'apk_1 7'],
    ['apk_1 7', 'apk_2 9'],
  ])
  t.match(views[0], { minute: 100, complete: true, scanned: 2, mode: 'memory', asOfMs: 6_000_000 })
  count('apk_1', 3)
  clock.tick(899)
  t.strictSame(await read('current'), views[0])
  clock.tick(1)
  t.strictSame(used(await read('current')), ['apk_1 10', 'apk_2 9'])
  t.equal(scans.length, 2)
})

t.test('while another instance counts by itself, the counts of the minute are too low', async (t) => {
  const { read, listed, setMinute } = openBoard()
  const lost = async (which: 'current' | 'last' = 'current') => {
    clock.tick(1000)
    return (await read(which)).lost
  }
  setMinute(100, 7000)
  listed.push({ counting: 'shared', silentS: 0 }, { counting: 'local', silentS: 6 })
  t.equal(await lost(), false, 'one that is no more counts nothing')
  setMinute(100, 900)
  listed.push({ counting: 'local', silentS: 1 })
  t.equal(await lost(), false, 'that was in the minute before')
  setMinute(100, 1100)
  t.equal(await lost(), true)
  t.equal(await lost('last'), false)
  listed.length = 0
  t.equal(await lost(), true, 'they stay too low')
  setMinute(101)
  t.equal(await lost(), false)
  t.equal(await lost('last'), true)
})

t.test('a scan that waits for another one does not begin once the board is closed', async (t) => {
  const { board, read, scans, hold } = openBoard()
  hold()
  const reads = [read('current'), read('last')]
  await nextTurn()
  board.close()
  scans[0]!.goOn()
  clock.tick(500)
  await Promise.all(reads)
  t.equal(scans.length, 1)
})

t.test('a scan that waits for another one does not begin once nobody can ask for its minute', async (t) => {
  const { read, scans, hold, setMinute } = openBoard()
  hold()
  const reads = [read('current'), read('last')]
  await nextTurn()
  setMinute(101)
  reads.push(read('current'))
  await nextTurn()
  scans[0]!.goOn()
  while (scans.length < 2) await nextTurn()
  t.equal(scans[1]!.minute, 101)
  scans[1]!.goOn()
  await Promise.all(reads)
})

t.test('an internal error of a ranking does not look like a Postgres outage', async (t) => {
  const counter = createMemoryCounter({ now: () => 0 })
  const rank = async () => {
    throw new TypeError('a bug')
  }
  for (const [keys, instances] of [
    [{ rank }, { list: async () => [] }],
    [{ rank: async () => [] }, { list: rank }],
  ] as const)
    await t.rejects(createBoard({ counter, keys, instances }).read('current', 'operator:ada'), TypeError)
})

t.test('a scan may use 4 % of a core of Redis, and 0.25 % while this instance is busy', async (t) => {
  const { read, scans } = openBoard()
  let utilization = 0
  const eventLoopUtilization = () => ({ idle: 0, active: 0, utilization })
  t.intercept(performance, 'eventLoopUtilization', { value: eventLoopUtilization })
  await read('current')
  const { share } = scans[0]!
  const shares = [0, 0.025, 0.05, 1].map((busy) => {
    utilization = busy
    return Number(share().toFixed(5))
  })
  t.strictSame(shares, [0.04, 0.02125, 0.0025, 0.0025])
})

t.test('the last minute is scanned once when it is over, and not again', async (t) => {
  const { read, scans, count, setMinute } = openBoard()
  await read('current')
  count('apk_1', 3)
  setMinute(101)
  t.match(await read('last'), { minute: 100, complete: true, scanned: 2, asOfMs: 6_060_001 })
  clock.tick(30_000)
  t.strictSame(used(await read('last')), ['apk_1 10', 'apk_2 9'])
  t.equal(scans.length, 2)
  t.match(await read('current'), { minute: 101, complete: true, scanned: 0, keys: [] })
})

t.test('a new scan of a minute has read nothing at first', async (t) => {
  const { read, scans, hold, setMinute } = openBoard()
  t.match(await read('current'), { minute: 100, scanned: 2 })
  hold()
  setMinute(101)
  const last = read('last')
  while (scans.length < 2) await nextTurn()
  clock.tick(500)
  t.match(await last, { minute: 100, complete: false, scanned: 0 })
  scans[1]!.goOn()
})

t.test('a scan of the last minute that broke off is made again', async (t) => {
  const { read, scans, hold, setMinute } = openBoard()
  hold()
  setMinute(101)
  const early = read('last')
  while (scans.length < 1) await nextTurn()
  clock.tick(5000)
  scans[0]!.goOn()
  t.match(await early, { complete: false })
  clock.tick(5000)
  const later = read('last')
  for (let n = 0; n < 20; n++) await nextTurn()
  t.equal(scans.length, 2)
  scans[1]?.goOn()
  t.match(await later, { complete: true, scanned: 2 })
})

t.test(
  'by share, a key with little use is found at once, and while somebody watches once it is used',
  async (t) => {
    const { read, count, limits, ranked } = openBoard()
    for (let i = 0; i < 2500; i++) count(`apk_busy${i}`, 20)
    const first = async () => (await read('current', 'share')).keys[0]!
    t.match(await first(), { id: 'apk_1', used: 7 })
    count('apk_1', 1)
    count('apk_small', 2)
    limits.apk_small = 2
    const ids: string[] = []
    for (let s = 1; s <= 4; s++) {
      clock.tick(1000)
      ids.push((await first()).id)
    }
    t.strictSame(ids, ['apk_small', 'apk_small', 'apk_small', 'apk_small'], 'and stays')
    t.ok(
      ranked.every((many, i) => (i === 0 ? many === 2502 : many <= 302)),
      `${ranked} were ranked`,
    )
    count('apk_other', 3)
    limits.apk_other = 1
    clock.tick(6000)
    t.match(await first(), { id: 'apk_other' })
  },
)

t.test('of keys that rise together a bounded number is ranked each time', async (t) => {
  const { read, count, ranked } = openBoard()
  const rise = () => {
    for (let i = 0; i < 2500; i++) count(`apk_busy${i}`, 20)
  }
  rise()
  await read('current')
  rise()
  clock.tick(1000)
  await read('current')
  t.ok(ranked[1]! <= 1300, `${ranked} were ranked`)
})

t.test('what Postgres could not rank is ranked when it answers again', async (t) => {
  const { read, count, limits, setDown } = openBoard()
  for (let i = 0; i < 200; i++) count(`apk_busy${i}`, 20)
  await read('current', 'share')
  count('apk_small', 2)
  count('apk_busy7', 1)
  limits.apk_small = 2
  setDown(true)
  clock.tick(1000)
  t.match(await read('current', 'share'), { named: false, keys: [{ id: 'apk_busy7', used: 21 }] })
  setDown(false)
  clock.tick(1000)
  t.match(await read('current', 'share'), { named: true, keys: [{ id: 'apk_small', used: 2 }] })
})

t.test('a minute that is over and read is ranked again after 10 s', async (t) => {
  const { read, limits, ranked, setMinute } = openBoard()
  setMinute(101)
  const first = async () => (await read('last', 'share')).keys[0]!.id
  t.equal(await first(), 'apk_1')
  limits.apk_2 = 1
  clock.tick(9999)
  t.equal(await first(), 'apk_1')
  clock.tick(1)
  t.equal(await first(), 'apk_2')
  t.equal(ranked.length, 2)
})

t.test('a minute that is over and not read yet is ranked again after 5 s', async (t) => {
  const { read, ranked, setMinute, hold } = openBoard()
  hold()
  setMinute(101)
  const readLast = async () => {
    const view = read('last')
    await nextTurn()
    clock.tick(500)
    return view
  }
  t.match(await readLast(), { complete: false })
  clock.tick(4499)
  await readLast()
  t.equal(ranked.length, 1)
  await readLast()
  t.equal(ranked.length, 2)
})

t.test('a long scan shows what it has so far, and ends when nobody asks any more', async (t) => {
  const { read, scans, hold } = openBoard()
  hold()
  const early = await read('current')
  t.match(early, { complete: false, scanned: 0, keys: [] })
  clock.tick(4999)
  const [{ signal, goOn }] = scans as [(typeof scans)[number]]
  await read('current')
  clock.tick(4999)
  t.equal(signal.aborted, false)
  clock.tick(1)
  t.equal(signal.aborted, true)
  goOn()
  await nextTurn()
  clock.tick(60_000)
  await nextTurn()
  t.equal(scans.length, 1)
  const later = read('current')
  while (scans.length < 2) await nextTurn()
  t.equal(scans[1]!.signal.aborted, false)
  scans[1]!.goOn()
  t.match(await later, { complete: true, scanned: 2 })
})

t.test('what this instance has counted is shown before it is scanned, and all has its turn', async (t) => {
  const { read, hold, known } = openBoard()
  hold()
  for (let i = 1; i <= 1500; i++) known.set(`apk_${i}`, i)
  const first = async () => {
    const view = await read('current')
    t.match(view, { complete: false, scanned: 0 })
    clock.tick(1000)
    return view.keys[0]
  }
  t.match(await first(), { id: 'apk_1000', used: 1000 })
  known.set('apk_3', 3000)
  t.match(await first(), { id: 'apk_1500', used: 1500 })
  t.match(await first(), { id: 'apk_3', used: 3000 })
})

t.test('a long scan ends with its minute, and does not keep the next one waiting', async (t) => {
  const { read, scans, hold, setMinute } = openBoard()
  hold()
  t.match(await read('current'), { minute: 100, complete: false })
  setMinute(101)
  const next = read('current')
  while (!scans[0]!.signal.aborted) await nextTurn()
  scans[0]!.goOn()
  while (scans.length < 2) await nextTurn()
  t.equal(scans[1]!.minute, 101)
  const last = read('last')
  scans[1]!.goOn()
  while (scans.length < 3) await nextTurn()
  setMinute(102)
  await read('current')
  t.equal(scans[2]!.signal.aborted, true, 'nobody can ask for minute 100 any more')
  scans[2]!.goOn()
  t.match([await next, await last], [{ minute: 101, complete: true }, { minute: 100 }])
})

t.test('the scans of the two minutes follow each other', async (t) => {
  const { read, scans, hold } = openBoard()
  hold()
  const views = Promise.all([read('current'), read('last')])
  while (scans.length < 1) await nextTurn()
  await nextTurn()
  t.equal(scans.length, 1)
  scans[0]!.goOn()
  while (scans.length < 2) await nextTurn()
  scans[1]!.goOn()
  t.match(await views, [
    { minute: 100, scanned: 2 },
    { minute: 99, scanned: 0 },
  ])
})

t.test('of the busiest keys 100 are shown in each order, and those as busy by their ids', async (t) => {
  const { read, count } = openBoard()
  const ids = Array.from({ length: 150 }, (_, i) => `apk_busy${100 + ((i * 7) % 150)}`)
  for (const id of ids) count(id, 20)
  const expected = ids.sort().slice(0, 100)
  for (const by of ['used', 'share'] as const) {
    const { keys } = await read('current', by)
    const shown = keys.map(({ id }) => id)
    if (by === 'used') t.strictSame(shown, expected)
    else t.strictSame(shown, ['apk_1', 'apk_2', ...expected].slice(0, 100))
  }
})

t.test('between two scans the counts that are shown rise all the same', async (t) => {
  const { read, count, hold } = openBoard()
  t.strictSame(used(await read('current')), ['apk_2 9', 'apk_1 7'])
  hold()
  count('apk_1', 3)
  clock.tick(1000)
  const later = read('current')
  await nextTurn()
  clock.tick(500)
  t.strictSame(used(await later), ['apk_1 10', 'apk_2 9'])
})

t.test('so do those of a key that is shown by its share only', async (t) => {
  const { read, count, hold } = openBoard()
  for (let i = 0; i < 100; i++) count(`apk_busy${i}`, 20)
  const first = async () => used(await read('current', 'share'))[0]
  t.equal(await first(), 'apk_1 7')
  hold()
  count('apk_1', 3)
  clock.tick(1000)
  const later = first()
  await nextTurn()
  clock.tick(500)
  t.equal(await later, 'apk_1 10')
})

t.test('a minute that is over has its names a second after Postgres is back', async (t) => {
  const { read, setDown, setMinute } = openBoard()
  setMinute(101)
  setDown(true)
  t.match(await read('last'), { complete: true, named: false })
  setDown(false)
  clock.tick(1000)
  t.match(await read('last'), { complete: true, named: true })
})

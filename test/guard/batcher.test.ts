// The batch: what arrives in one turn goes out as one, each item gets its own answer, and
// everything is bounded.
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { type BatcherOptions, createBatcher } from '../../src/guard/batcher.ts'
import { Unavailable } from '../../src/stores.ts'
import { setClock } from '../clock.ts'

const bounds = { name: 'Server', batchMax: 100, inFlightMax: 2, queueMax: 1000, timeoutMs: 1000 }

/** The test answers the batches: each number with its double. */
function byHand(options: Partial<BatcherOptions<number, number>> = {}) {
  const batches: { items: number[]; answer(): void; fail(error: Error): void }[] = []
  const batcher = createBatcher<number, number>({
    ...bounds,
    run: (items) =>
      new Promise((resolve, reject) => {
        batches.push({ items, answer: () => resolve(items.map((n) => 2 * n)), fail: reject })
      }),
    ...options,
  })
  /** The answer or the error. */
  const add = (item: number): Promise<unknown> => batcher.add(item).catch((error) => error)
  /** Answers the last batch, and waits for the next one. */
  const answer = async () => {
    batches.at(-1)!.answer()
    await nextTurn()
    await nextTurn()
  }
  return { batcher, batches, add, answer, sent: () => batches.map(({ items }) => items) }
}

const range = (n: number) => Array.from({ length: n }, (_, i) => i)
const isUnavailable = (answer: unknown) => answer instanceof Unavailable

t.test('each item gets its own answer within all bounds, under any sequence of events', async (t) => {
  const steps = fc.array(fc.constantFrom('turn' as const, 'add' as const), { maxLength: 120 })
  const some = fc.integer({ min: 1, max: 5 })
  await fc.assert(
    fc.asyncProperty(steps, some, some, async (steps, batchMax, inFlightMax) => {
      let [inFlight, most, largest, runs] = [0, 0, 0, 0]
      const batcher = createBatcher<number, string>({
        ...bounds,
        batchMax,
        inFlightMax,
        async run(items) {
          most = Math.max(most, ++inFlight)
          largest = Math.max(largest, items.length)
          const fails = ++runs % 3 === 0
          await nextTurn()
          inFlight--
          if (fails) throw new Error(items.join())
          return items.map((n) => `answer ${n}`)
        },
      })
      const answers: Promise<string>[] = []
      for (const step of steps) {
        if (step === 'add') {
          answers.push(batcher.add(answers.length))
          answers.at(-1)!.catch(() => {})
        } else await nextTurn()
      }
      const right = (await Promise.allSettled(answers)).every((answer, n) =>
        answer.status === 'rejected'
          ? answer.reason.message.split(',').includes(String(n))
          : answer.value === `answer ${n}`,
      )
      return right && most <= inFlightMax && largest <= batchMax
    }),
    { numRuns: 200 },
  )
  t.pass('for every sequence tried')
})

t.test('what is added in one turn goes out at its end as one batch, in the order of adding', async (t) => {
  const sizes: number[] = []
  const { add, answer, sent } = byHand({ onBatch: (size) => sizes.push(size) })
  const answers = range(30).map(add)
  await nextTurn()
  t.strictSame(sent(), [range(30)])
  t.strictSame(sizes, [30])
  await answer()
  t.strictSame(
    await Promise.all(answers),
    range(30).map((n) => 2 * n),
  )
})

t.test('while as many batches as allowed are under way, items gather for the next', async (t) => {
  const { add, answer, sent } = byHand({ inFlightMax: 1, batchMax: 3 })
  const answers = []
  for (const n of range(6)) {
    answers.push(add(n))
    await nextTurn()
    t.strictSame(sent(), [[0]], 'the lone one has gone out at the end of its own turn')
  }
  await answer()
  t.strictSame(sent(), [[0], [1, 2, 3]])
  await answer()
  t.strictSame(sent(), [[0], [1, 2, 3], [4, 5]])
  await answer()
  t.strictSame(await Promise.all(answers), [0, 2, 4, 6, 8, 10])
})

t.test('the wait of a batch is that of its oldest item', async (t) => {
  const clock = setClock(t)
  const waits: number[] = []
  const { add, answer } = byHand({ inFlightMax: 1, onWait: (seconds) => waits.push(seconds) })
  void add(1)
  await nextTurn()
  for (const n of [2, 3]) {
    void add(n)
    clock.advance(30)
  }
  await answer()
  t.strictSame(waits, [0, 0.06])
  await answer()
})

t.test('a full queue sheds what comes, answers what waits, and takes more afterwards', async (t) => {
  let shed = 0
  const { add, answer, sent } = byHand({ queueMax: 4, inFlightMax: 1, onShed: () => shed++ })
  const waiting = range(4).map(add)
  t.ok((await Promise.all([add(4), add(5)])).every(isUnavailable))
  t.equal(shed, 2)
  await nextTurn()
  t.strictSame(sent(), [range(4)], 'what was shed is not asked for')
  const later = add(6)
  await answer()
  t.strictSame(await Promise.all(waiting), [0, 2, 4, 6])
  await answer()
  t.equal(await later, 12)
})

t.test('a batch that fails, also before it begins, fails for its own items only', async (t) => {
  const { add, batches } = byHand({ batchMax: 2 })
  const answers = range(4).map(add)
  await nextTurn()
  const error = new Error('no')
  batches[0]!.fail(error)
  batches[1]!.answer()
  t.strictSame(await Promise.all(answers), [error, error, 4, 6])

  const throwing = byHand({
    run: () => {
      throw error
    },
  })
  t.equal(await throwing.add(1), error)
  t.equal(await throwing.add(2), error, 'and the next is tried')
})

t.test('what is given up while it waits is not sent, and what comes later is given up too', async (t) => {
  const clock = setClock(t)
  const waits: number[] = []
  const { add, answer, sent } = byHand({
    inFlightMax: 1,
    timeoutMs: 200,
    onWait: (seconds) => waits.push(seconds),
  })
  const answers = [add(1)]
  await nextTurn()
  answers.push(add(2))
  clock.advance(200)
  t.strictSame(waits, [0, 0.2], 'what went out at once, and what did not go out')
  const gaveUp = new Unavailable('Server: no answer in 200 ms')
  t.same(await Promise.all(answers), [gaveUp, gaveUp])
  await answer()
  t.strictSame(sent(), [[1]])
  clock.advance(3_600_000)
  const later = add(3)
  clock.advance(200)
  t.ok(isUnavailable(await later))
})

t.test('items of one turn wait for its end together', async (t) => {
  const { setImmediate } = globalThis
  let waits = 0
  t.intercept(globalThis, 'setImmediate', {
    value: (run: () => void) => {
      waits++
      return setImmediate(run)
    },
  })
  const { add } = byHand()
  for (const n of range(30)) void add(n)
  t.equal(waits, 1)
})

t.test('each item is given up at its own time, whether it waits or is under way', async (t) => {
  const clock = setClock(t)
  const { add, answer, sent } = byHand({ inFlightMax: 1, timeoutMs: 200 })
  const ended: number[] = []
  const follow = (n: number) => add(n).then((outcome) => isUnavailable(outcome) && ended.push(n))
  void follow(1)
  await nextTurn()
  void follow(2)
  clock.advance(2)
  void follow(3)
  await answer()
  t.strictSame(sent(), [[1], [2, 3]])
  clock.advance(148)
  void follow(4)
  for (const [ms, wanted] of [
    [45, []],
    [5, [2]],
    [2, [2, 3]],
    [143, [2, 3]],
    [5, [2, 3, 4]],
  ] as const) {
    clock.advance(ms)
    await nextTurn()
    t.strictSame(ended, wanted)
  }
})

t.test('drained means that nothing waits and nothing is under way', async (t) => {
  const { batcher, batches, add, answer } = byHand({ inFlightMax: 1, batchMax: 1 })
  await batcher.drained()
  void add(1)
  const failing = add(2)
  let drained = 0
  const both = [batcher.drained(), batcher.drained()].map((one) => one.then(() => drained++))
  await nextTurn()
  await answer()
  t.equal(drained, 0, 'the second is under way')
  batches[1]!.fail(new Error('no'))
  t.match(await failing, { message: 'no' })
  await Promise.all(both)
  t.equal(drained, 2)
  await batcher.drained()
})

// The batch: what arrives in one turn goes out as one, each item gets its own answer, and nothing is without bound.
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { type BatcherOptions, createBatcher } from '../../src/guard/batcher.ts'
import { Unavailable } from '../../src/stores.ts'
import { setClock } from '../clock.ts'

const bounds = { batchMax: 100, inFlightMax: 2, queueMax: 1000, timeoutMs: 1000 }

/** A batcher whose batches are answered by hand: each number by its double. */
function byHand(options: Partial<BatcherOptions<number, number>> = {}) {
  const batches: { items: number[]; timeoutMs: number; answer(): void; fail(error: Error): void }[] = []
  const batcher = createBatcher<number, number>({
    ...bounds,
    run: (items, timeoutMs) =>
      new Promise((resolve, reject) => {
        batches.push({ items, timeoutMs, answer: () => resolve(items.map((n) => 2 * n)), fail: reject })
      }),
    ...options,
  })
  return { batcher, batches }
}

const range = (n: number) => Array.from({ length: n }, (_, i) => i)
const ended = (work: Promise<unknown>) =>
  work.then(
    (answer) => answer,
    (error) => error,
  )
const isUnavailable = (answer: unknown) => answer instanceof Unavailable

t.test(
  'each item gets its own answer, and no bound is passed, under any course of adding and answering',
  async (t) => {
    const steps = fc.array(fc.oneof(fc.constant('turn' as const), fc.constant('add' as const)), {
      maxLength: 120,
    })
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
            if (fails) throw new Error(`not ${items.join()}`)
            return items.map((n) => `answer ${n}`)
          },
        })
        const answers: Promise<unknown>[] = []
        for (const step of steps) {
          if (step === 'add') answers.push(ended(batcher.add(answers.length)))
          else await nextTurn()
        }
        const right = (await Promise.all(answers)).every((answer, n) =>
          answer instanceof Error
            ? answer.message.slice(4).split(',').includes(String(n))
            : answer === `answer ${n}`,
        )
        return right && most <= inFlightMax && largest <= batchMax
      }),
      { numRuns: 200 },
    )
    t.pass('for every course tried')
  },
)

t.test('what is added in one turn goes out as one, in the order of adding', async (t) => {
  const sizes: number[] = []
  const { batcher, batches } = byHand({ onBatch: (size) => sizes.push(size) })
  const answers = range(30).map((n) => batcher.add(n))
  await nextTurn()
  t.strictSame(
    batches.map(({ items }) => items),
    [range(30)],
  )
  t.strictSame(sizes, [30])
  batches[0]!.answer()
  t.strictSame(
    await Promise.all(answers),
    range(30).map((n) => 2 * n),
  )
})

t.test('a lone item goes out at the end of its own turn', async (t) => {
  const { batcher, batches } = byHand()
  const answer = batcher.add(21)
  await nextTurn()
  t.strictSame(batches[0]!.items, [21])
  batches[0]!.answer()
  t.equal(await answer, 42)
})

t.test('while as many batches as allowed are under way, items gather for the next', async (t) => {
  const { batcher, batches } = byHand({ inFlightMax: 1, batchMax: 3 })
  const answers = [batcher.add(0)]
  await nextTurn()
  for (let n = 1; n <= 5; n++) {
    answers.push(batcher.add(n))
    await nextTurn()
  }
  t.equal(batches.length, 1)
  batches[0]!.answer()
  await answers[0]
  await nextTurn()
  t.strictSame(batches[1]!.items, [1, 2, 3])
  batches[1]!.answer()
  await answers[1]
  await nextTurn()
  t.strictSame(batches[2]!.items, [4, 5])
  batches[2]!.answer()
  t.strictSame(await Promise.all(answers), [0, 2, 4, 6, 8, 10])
})

t.test('a full queue sheds what comes, answers what waits, and takes more afterwards', async (t) => {
  let shed = 0
  const { batcher, batches } = byHand({ queueMax: 4, inFlightMax: 1, onShed: () => shed++ })
  const waiting = range(4).map((n) => batcher.add(n))
  const [over, alsoOver] = [await ended(batcher.add(4)), await ended(batcher.add(5))]
  t.ok(isUnavailable(over) && isUnavailable(alsoOver))
  t.equal(shed, 2)
  await nextTurn()
  t.strictSame(batches[0]!.items, range(4), 'what was shed is not asked for')
  const later = batcher.add(6)
  batches[0]!.answer()
  t.strictSame(await Promise.all(waiting), [0, 2, 4, 6])
  await nextTurn()
  batches[1]!.answer()
  t.equal(await later, 12)
})

t.test('a batch that fails fails for all of it, and for no other', async (t) => {
  const { batcher, batches } = byHand({ batchMax: 2 })
  const answers = range(4).map((n) => ended(batcher.add(n)))
  await nextTurn()
  const error = new Error('no')
  batches[0]!.fail(error)
  batches[1]!.answer()
  t.strictSame(await Promise.all(answers), [error, error, 4, 6])
})

t.test('work that throws before it begins fails its batch', async (t) => {
  const batcher = createBatcher<number, number>({
    ...bounds,
    run: () => {
      throw new Error('at once')
    },
  })
  t.match(await ended(batcher.add(1)), { message: 'at once' })
  t.match(await ended(batcher.add(2)), { message: 'at once' }, 'and the next is tried')
})

t.test("a batch is given what is left of its oldest item's time", async (t) => {
  const clock = setClock(t)
  const { batcher, batches } = byHand({ inFlightMax: 1, timeoutMs: 1000 })
  const first = batcher.add(1)
  await nextTurn()
  t.equal(batches[0]!.timeoutMs, 1000)
  const second = batcher.add(2)
  clock.advance(300)
  batches[0]!.answer()
  await first
  await nextTurn()
  t.equal(batches[1]!.timeoutMs, 700)
  batches[1]!.answer()
  await second
})

t.test('an item is given up after its time, whether it waits or is under way', async (t) => {
  const clock = setClock(t)
  const { batcher } = byHand({ inFlightMax: 1, timeoutMs: 300 })
  const answers = [ended(batcher.add(1))]
  await nextTurn()
  answers.push(ended(batcher.add(2)))
  clock.advance(300)
  t.ok((await Promise.all(answers)).every(isUnavailable), 'both are Unavailable')
})

t.test('drained means that nothing waits and nothing is under way', async (t) => {
  const { batcher, batches } = byHand({ inFlightMax: 1, batchMax: 1 })
  await batcher.drained()
  const answers = [batcher.add(1), batcher.add(2)]
  let drained = 0
  const both = [batcher.drained(), batcher.drained()].map((one) => one.then(() => drained++))
  await nextTurn()
  batches[0]!.answer()
  await answers[0]
  await nextTurn()
  t.equal(drained, 0, 'the second is under way')
  batches[1]!.fail(new Error('no'))
  await t.rejects(answers[1]!)
  await Promise.all(both)
  t.equal(drained, 2)
  await batcher.drained()
})

t.test('of a batch without an answer each item is given up at its own time', async (t) => {
  const clock = setClock(t)
  const { batcher, batches } = byHand({ inFlightMax: 1, timeoutMs: 200 })
  const first = batcher.add(1)
  await nextTurn()
  const early = ended(batcher.add(2))
  clock.advance(100)
  let lateEnded = false
  const late = ended(batcher.add(3)).finally(() => {
    lateEnded = true
  })
  batches[0]!.answer()
  await first
  clock.advance(100)
  t.ok(isUnavailable(await early))
  clock.advance(95)
  await nextTurn()
  t.notOk(lateEnded)
  clock.advance(5)
  t.ok(isUnavailable(await late))
})

// The hits of one call: which keys it names, how many hits each has, and which number each hit
// gets.
import fc from 'fast-check'
import t from 'tap'
import { createHits } from '../../src/redis/hits.ts'
import type { CountReply } from '../../src/stores.ts'
import { until } from '../process/until.ts'

const turn: CountReply = { nowMs: 0, monoMs: 0, shared: true }

t.test('a call names each key once, with the sum of its hits', async (t) => {
  const hits = createHits()
  t.strictSame([hits.keyIds, hits.sums, hits.size()], [[], [], 0])
  for (const keyId of ['apk_b', 'apk_a', 'apk_b', 'apk_b']) hits.add(keyId, () => {})
  t.strictSame(
    [hits.keyIds, hits.sums],
    [
      ['apk_b', 'apk_a'],
      [3, 1],
    ],
  )
  t.equal(hits.size(), 4)
})

t.test('each hit gets its own number, in order of arrival, with the version of its key', async (t) => {
  const hits = createHits()
  const answers: string[] = []
  for (const [i, keyId] of ['apk_a', 'apk_b', 'apk_a', 'apk_a', 'apk_b'].entries())
    hits.add(keyId, (number, version, of) => {
      t.equal(of, turn)
      answers.push(`hit ${i} of ${keyId}: ${number}, version ${version}`)
    })
  t.strictSame(answers, [], 'not before the answer')
  hits.answer([10, 2], [7, -1], turn)
  t.strictSame(answers, [
    'hit 0 of apk_a: 8, version 7',
    'hit 1 of apk_b: 1, version -1',
    'hit 2 of apk_a: 9, version 7',
    'hit 3 of apk_a: 10, version 7',
    'hit 4 of apk_b: 2, version -1',
  ])
})

t.test('hits that were not counted get numbers below 1', async (t) => {
  const hits = createHits()
  const numbers: Record<string, number[]> = { apk_full: [], apk_counted: [] }
  for (const keyId of ['apk_full', 'apk_counted', 'apk_full', 'apk_counted'])
    hits.add(keyId, (number) => numbers[keyId]!.push(number))
  hits.answer([0, 5], [0, 0], turn)
  t.strictSame(numbers, { apk_full: [-1, 0], apk_counted: [4, 5] })
})

t.test(
  'the numbers of a key end with its count and leave none out, whatever the order of keys',
  async (t) => {
    const arrivals = fc.array(fc.nat(4), { minLength: 1, maxLength: 60 })
    fc.assert(
      fc.property(arrivals, fc.array(fc.nat(1000), { minLength: 5, maxLength: 5 }), (keys, before) => {
        const hits = createHits()
        const numbers = new Map<string, number[]>()
        for (const key of keys) {
          const keyId = `${key}`
          const given = numbers.get(keyId) ?? []
          numbers.set(keyId, given)
          hits.add(keyId, (number) => given.push(number))
        }
        const { keyIds, sums } = hits
        hits.answer(
          keyIds.map((keyId, i) => before[Number(keyId)]! + sums[i]!),
          sums,
          turn,
        )
        return [...numbers].every(([keyId, given]) =>
          given.every((number, i) => number === before[Number(keyId)]! + i + 1),
        )
      }),
    )
    t.pass('for every order tried')
  },
)

t.test('a hit whose request fails takes no answer from the others', async (t) => {
  const faults: unknown[] = []
  const onFault = (error: unknown) => faults.push(error)
  process.once('unhandledRejection', onFault)
  const hits = createHits()
  const answers: number[] = []
  const fault = new Error('the code of an application')
  hits.add('apk_a', () => {
    throw fault
  })
  hits.add('apk_a', (number) => answers.push(number))
  hits.answer([2], [0], turn)
  t.strictSame(answers, [2])
  await until('the fault is reported', () => faults.length > 0)
  t.strictSame(faults, [fault])
})

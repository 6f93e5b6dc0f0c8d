import t from 'tap'
import type { Sample } from '../../bench/measure.ts'
import { cpuRatio, perRound } from '../../bench/ratios.ts'
import type { Result } from '../../bench/rounds.ts'
import { estimate, quantile } from '../../bench/statistics.ts'

const sample = (cpuUs: number): Sample => ({
  requestsPerS: 1,
  cpuUs,
  p50Ms: 1,
  p99Ms: 1,
  scriptCalls: 1,
  redisCpuUs: 1,
  postgresCpuUs: null,
})

const result = (name: string, cpuUs: number[]): Result => ({
  name,
  median: sample(quantile(cpuUs, 0.5)),
  lowerQuartile: sample(quantile(cpuUs, 0.25)),
  upperQuartile: sample(quantile(cpuUs, 0.75)),
  samples: cpuUs.map(sample),
})

t.test('a quantile lies between its two neighbours', async (t) => {
  t.equal(quantile([4, 1, 3, 2], 0.5), 2.5)
  t.equal(quantile([5, 1, 3, 2, 4], 0.25), 2)
  t.equal(quantile([7], 0.25), 7)
})

t.test('a machine that slows down between rounds leaves a ratio alone', async (t) => {
  const results = [result('ours', [10, 40, 20, 30]), result('theirs', [20, 80, 40, 60])]
  t.match(cpuRatio(results, 'theirs', 'ours'), {
    what: 'theirs / ours',
    perRound: { median: 2, low: 2, high: 2 },
    bestQuarters: 2,
  })
})

t.test('figures of several results combine round by round', async (t) => {
  const results = [result('a', [1, 2, 3]), result('b', [10, 20, 30])]
  t.equal(perRound(results, 'cpuUs', ['a', 'b'], (a, b) => b - a).median, 18)
  t.throws(() => perRound(results, 'cpuUs', ['c'], (c) => c), { message: 'no result of c' })
})

t.test('the interval surrounds the median and ignores a single outlier', async (t) => {
  const values = [1, 1.01, 0.99, 1.02, 0.98, 1, 1.01, 0.99, 1, 1.02, 0.98, 1, 1.01, 0.99, 50]
  const { median, low, high } = estimate(values)
  t.equal(median, 1)
  t.ok(low <= median && median <= high)
  t.ok(low >= 0.98 && high <= 1.02, `${low}–${high}`)
  t.same(estimate(values), { median, low, high }, 'the same each time')
})

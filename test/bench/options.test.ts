import t from 'tap'
import { readOptions } from '../../bench/options.ts'

const known = {
  benchmarks: ['hot-key', 'many-keys', 'growth'],
  tools: ['profile'],
  comparisons: ['hot-key', 'many-keys'],
}
const read = (...args: string[]) => readOptions(args, known)

t.test('by default all benchmarks run, in 15 windows of 2 s', async (t) => {
  t.match(read(), { names: known.benchmarks, rounds: 15, seconds: 2, before: null })
})

t.test('--before runs the comparisons, and never over the published results', async (t) => {
  t.match(read('--before', '/x', '--out', '/y'), { names: known.comparisons, before: '/x', out: '/y' })
  t.throws(() => read('--before', '/x'), { message: /^--before needs --out/ })
  t.throws(() => read('growth', '--before', '/x', '--out', '/y'), {
    message: '--before is for hot-key and many-keys only',
  })
})

t.test('an unknown benchmark and a bad number are refused by name', async (t) => {
  t.throws(() => read('hot'), { message: /^no benchmark "hot"/ })
  t.throws(() => read('--rounds', '0'), { message: '--rounds must be a whole number from 1 to 9999' })
})

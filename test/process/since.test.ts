// --since: Unix seconds, an ISO 8601 date, or an age.
import t from 'tap'
import { timeS } from '../../src/commands/options.ts'

const sinceS = (text: string, nowS: number) => timeS('--since', text, nowS)
const nowS = 1_767_225_600 // 2026-01-01T00:00:00Z

t.test('an age counts back from now', async (t) => {
  t.equal(sinceS('90s', nowS), nowS - 90)
  t.equal(sinceS('15m', nowS), nowS - 900)
  t.equal(sinceS('6h', nowS), nowS - 21_600)
  t.equal(sinceS('7d', nowS), nowS - 604_800)
  t.equal(sinceS('0s', nowS), nowS)
  t.equal(sinceS('9999999999d', nowS), 0, 'an age beyond the start of Unix time means everything')
})

t.test('a whole number is Unix seconds', async (t) => {
  t.equal(sinceS('0', nowS), 0)
  t.equal(sinceS('1767225600', nowS), 1_767_225_600)
})

t.test('a date is its midnight UTC, and a moment is itself', async (t) => {
  t.equal(sinceS('2026-01-01', nowS), nowS)
  t.equal(sinceS('2026-01-01T00:00:30Z', nowS), nowS + 30)
  t.equal(sinceS('2026-01-01T02:00:00+02:00', nowS), nowS)
  t.equal(sinceS('2026-01-01T00:00:00.500Z', nowS), nowS + 0.5)
})

t.test('anything else is refused with the forms that are accepted', async (t) => {
  const wrong = [
    '',
    'yesterday',
    '-5',
    '7w',
    '7 d',
    '1.5h',
    '2026-13-01',
    '2026-01-32',
    '01/01/2026',
    '1e9',
    'd',
  ]
  for (const text of wrong) {
    t.throws(() => sinceS(text, nowS), { message: /^--since must be .*Unix seconds.*ISO 8601.*age/ }, text)
  }
})

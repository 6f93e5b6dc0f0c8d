// --since: Unix seconds, an ISO 8601 date, or an age.
import t from 'tap'
import { expiryS, timeOf } from '../../src/commands/options.ts'

const sinceS = (text: string, nowS: number) => timeOf('--since', text)(nowS)
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
  t.equal(sinceS('2024-02-29T12:00Z', nowS), 1_709_208_000)
})

t.test('a moment without a zone is UTC, wherever the command runs', async (t) => {
  const zone = process.env.TZ
  process.env.TZ = 'Asia/Tokyo'
  t.teardown(() => {
    if (zone === undefined) delete process.env.TZ
    else process.env.TZ = zone
  })
  for (const text of ['2026-01-01T00:00:30', '2026-01-01 00:00:30', '2026-01-01T00:00:30.0'])
    t.equal(sinceS(text, nowS), nowS + 30, text)
  t.equal(sinceS('2026-01-01T00:00', nowS), nowS)
})

t.test('eight digits that look like a date are not read as seconds', async (t) => {
  t.throws(() => sinceS('20260101', nowS), { message: /^--since: .*2026-01-01$/ })
  t.equal(sinceS('99999999', nowS), 99_999_999)
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
    '2026-02-30',
    '2026-02-29T00:00Z',
    '2026-01-01T25:00',
    '2026-01-01T00:00:30+2',
    '2026-01-01 noon',
    '01/01/2026',
    '1e9',
    'd',
  ]
  for (const text of wrong) {
    t.throws(() => sinceS(text, nowS), { message: /^--since must be .*Unix seconds.*ISO 8601.*age/ }, text)
  }
})

t.test('an expiry is a moment too, but no age', async (t) => {
  t.equal(expiryS('1767225600'), nowS)
  t.equal(expiryS('2026-01-01'), nowS)
  t.equal(expiryS('2026-01-01T01:00+01:00'), nowS)
  t.equal(expiryS('2099-12-31T23:59:59'), 4_102_444_799)
  const outside = ['', '0', '1.5', '1e9', '6h', '2026-02-30', '4102444800', '99999999999', '1970-01-01']
  for (const text of outside)
    t.throws(() => expiryS(text), { message: /^--expires-at must be .*Unix seconds.*ISO 8601/ }, text)
  t.throws(() => expiryS('20260101'), { message: /2026-01-01/ })
})

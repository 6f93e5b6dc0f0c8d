// Which steps a usage history has: whole ones, none in the future, at most 1,500.
import fc from 'fast-check'
import t from 'tap'
import { usagePointsMax, usageStepS, usageSteps } from '../../schemas/bounds.ts'
import { usageRange } from '../../src/rules/usage-range.ts'

/** 2026-11-22T14:05:30Z */
const nowS = 1_795_356_330
const minuteS = 1_795_356_300
const hourS = 1_795_356_000
const dayS = 1_795_305_600

const ranged = (...asked: Parameters<typeof usageRange>) => {
  const found = usageRange(...asked)
  return found.ok ? [found.range.sinceS, found.range.untilS] : found.param
}

t.test('without bounds it ends with this step and fits on a screen', async (t) => {
  t.strictSame(ranged({}, nowS), [minuteS - 59 * 60, minuteS + 60])
  t.strictSame(ranged({ step: 'minute' }, nowS), ranged({}, nowS))
  t.strictSame(ranged({ step: 'hour' }, nowS), [hourS - 47 * 3600, hourS + 3600])
  t.strictSame(ranged({ step: 'day' }, nowS), [dayS - 29 * 86_400, dayS + 86_400])
})

t.test(
  'it begins with the step of `since`, and ends before the first step that begins at `until`',
  async (t) => {
    const between = (since: number, until: number) => ranged({ since: `${since}`, until: `${until}` }, nowS)
    t.strictSame(between(minuteS - 120, minuteS - 60), [minuteS - 120, minuteS - 60])
    t.strictSame(between(minuteS - 61, minuteS - 59), [minuteS - 120, minuteS])
    t.strictSame(between(minuteS, 9_999_999_999), [minuteS, minuteS + 60], 'never in the future')
    t.strictSame(ranged({ until: `${minuteS - 60}` }, nowS), [minuteS - 61 * 60, minuteS - 60])
    t.strictSame(ranged({ until: '61' }, nowS), [0, 120], 'never before 1970')
  },
)

t.test('what is out of order or too long is refused by name', async (t) => {
  t.equal(ranged({ since: `${minuteS - 60}`, until: `${minuteS - 60}` }, nowS), 'since')
  t.equal(ranged({ since: `${minuteS + 60}` }, nowS), 'since')
  t.equal(ranged({ since: `${minuteS - 30}`, until: `${minuteS - 30}` }, nowS), 'since', 'in one step')
  t.equal(ranged({ since: `${hourS + 9}`, until: `${hourS + 8}`, step: 'hour' }, nowS), 'since')
  t.equal(ranged({ until: '0' }, nowS), 'until')
  t.equal(ranged({ since: '0', until: '0' }, nowS), 'since')
  for (const step of usageSteps) {
    const longest = nowS - (nowS % usageStepS[step]) - (usagePointsMax - 1) * usageStepS[step]
    t.type(ranged({ step, since: `${longest}` }, nowS), Array)
    const fault = usageRange({ step, since: `${longest - 1}` }, nowS)
    t.match(fault, { ok: false, param: 'since', message: /1501 steps of one .* at most 1500/ })
  }
  const { suggestion } = usageRange({ since: '0' }, nowS) as { suggestion: string }
  const [, since] = /\((\d+) at the earliest\)/.exec(suggestion)!
  t.type(ranged({ since: since! }, nowS), Array, 'the suggestion works')
  t.equal(ranged({ since: String(Number(since) - 1) }, nowS), 'since')
  const days = usageRange({ since: '0', step: 'day' }, nowS)
  t.match(days, { suggestion: 'Send a later `since`, or an earlier `until` with it.' })
  t.match(usageRange({ until: '0' }, nowS + 0.9), { suggestion: new RegExp(`it is now ${nowS}\\.$`) })
})

t.test('a range is always of whole steps and holds what was asked for', async (t) => {
  const moment = fc.nat(2 * nowS).map(String)
  const steps = fc.constantFrom(...usageSteps)
  const query = fc.record({ since: moment, until: moment, step: steps }, { requiredKeys: [] })
  fc.assert(
    fc.property(query, (query) => {
      const found = usageRange(query, nowS)
      if (!found.ok) return true
      const { step, sinceS, untilS } = found.range
      const points = (untilS - sinceS) / usageStepS[step]
      return (
        [sinceS, untilS].every((boundS) => boundS >= 0 && boundS % usageStepS[step] === 0) &&
        points >= 1 &&
        points <= usagePointsMax &&
        untilS - usageStepS[step] <= nowS &&
        (query.since === undefined || sinceS <= Number(query.since))
      )
    }),
  )
  t.pass('for every query tried')
})

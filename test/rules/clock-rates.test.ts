// What docs/architecture.md assumes of clocks: rates within 4 %, and a second until Postgres has read its own.
import t from 'tap'
import { atLeastMs, elsewhereMs, silenceMs } from '../../src/rules/clock-rates.ts'

t.test('what another machine measures takes up to 4 % longer by our clock', async (t) => {
  t.strictSame([0, 1000, 60_000].map(elsewhereMs), [0, 1040, 62_400])
})

t.test('what another machine measures may be over up to 4 % sooner by our clock', async (t) => {
  t.strictSame([0, 1040, 62_400].map(atLeastMs), [0, 1000, 60_000])
})

t.test('an instance counts as silent a second after it must stop using old copies', async (t) => {
  t.strictSame([0, 60_000].map(silenceMs), [1000, 63_400])
})

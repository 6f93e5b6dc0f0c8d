/** A fault again and again on the same instances: what each round must keep, and the figures of all. */
import type { Test } from 'tap'
import type { Row } from '../figures.ts'
import { failedOf, quantile } from '../load.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import type { Chance } from './chance.ts'
import { tally } from './redis-answers.ts'
import type { Fault } from './redis-faults.ts'
import { type Fleet, toldOfRedis } from './redis-fleet.ts'
import { type Round, runRound } from './redis-round.ts'

type RedisRow = Exclude<Extract<Row, `redis-${string}`>, 'redis-changes'>

const switchP99MsMax = 250
const backMsMax = 2000

export async function repeatedly(t: Test, fleet: Fleet, fault: Fault, chance: Chance, row: RedisRow) {
  const { instances, networks } = fleet
  const before = instances.map((instance) => toldOfRedis(instance).length)
  const rounds: Round[] = []
  for (let n = 1; n <= scaled(1, 20); n++) {
    const round = await runRound(t, fleet, fault, chance)
    rounds.push(round)
    t.strictSame(tally(round.faults), [], `round ${n}: ${round.samples.length} answers without a fault`)
    t.ok(
      round.backMs <= backMsMax,
      `round ${n}: counting in Redis again after ${Math.round(round.backMs)} ms`,
    )
  }

  const took = rounds.map(({ switching }) => switching.map(({ tookMs }) => tookMs))
  const p99 = quantile(took.flat(), 0.99)
  // A short run shares its processors with other tests: what even a probe waits there is not the fault's doing.
  const probeP99 = quantile(
    rounds.flatMap(({ meanwhile }) => meanwhile.map(({ tookMs }) => tookMs)),
    0.99,
  )
  const boundMs = switchP99MsMax + (soaking ? 0 : probeP99)
  t.ok(
    p99 <= boundMs,
    `p99 during the switch ${Math.round(p99)} ms, of probes meanwhile ${Math.round(probeP99)} ms`,
  )
  const sum = (of: (round: Round) => number) => rounds.reduce((total, round) => total + of(round), 0)
  if (fault.heal) t.ok(sum((round) => round.keptRefused) > 0, 'a key used up was asked for meanwhile')
  t.ok(sum((round) => round.usedUp) > 0, 'a key was used up by the count that went on')

  const away = fault.takesAwayFrom(fleet)
  instances.forEach((instance, i) => {
    const lines = toldOfRedis(instance).slice(before[i])
    const expected = away.includes(instance) ? ['away', 'back'] : []
    const said = rounds.map(({ from, to }) =>
      lines.flatMap(({ what, at }) => (at >= from && at <= to ? what : [])),
    )
    t.strictSame(
      said,
      rounds.map(() => expected),
      `instance ${i} said so once each way`,
    )
    // In a short run beside others a network of the test's may itself be late by the 100 ms that Redis is given.
    if (i < networks.length && !soaking) return
    t.equal(lines.length, rounds.length * expected.length, `instance ${i} said nothing more`)
  })

  const answers = rounds.flatMap(({ samples }) => samples)
  recordFigure(t, row, {
    rounds: rounds.length,
    requests: answers.length,
    failed: failedOf(answers),
    p99Ms: p99,
    worstMs: Math.max(...took.map((ms) => quantile(ms, 0.99))),
    backMs: Math.max(...rounds.map((round) => round.backMs)),
  })
}

// Another Postgres takes over behind the same address: the service finds it by itself, even if its
// connections to the old one stay open. (That it trusts nothing the old one still says:
// postgres-behind.test.ts.)
import t, { type Test } from 'tap'
import { recordFigure, scaled } from '../soak.ts'
import {
  everything,
  expectRecorded,
  type Fates,
  type Fault,
  figuresOf,
  type Outcome,
  onlyCached,
  refusedIds,
  underLoad,
} from './postgres-fault.ts'
import { makeReadOnly, startPair } from './postgres-standby.ts'

/** Of a server that still reads: what only reads may go on, what writes may not. */
const readOnly: Fates = {
  ...everything,
  writing: 'stops',
  unknown: 'stops',
  listing: 'falters',
  fresh: 'falters',
}

const pair = await startPair(t)
if (pair !== null) {
  const { address, world, startStandby } = pair

  /**
   * Afterwards each 401 that a client was given is in the log of the server that is then the
   * primary.
   */
  async function repeat(
    t: Test,
    fault: () => Promise<Pick<Fault, 'begin' | 'end' | 'fates'>>,
  ): Promise<Outcome[]> {
    const outcomes: Outcome[] = []
    for (let round = 0; round < scaled(1, 5); round++) {
      const outcome = await underLoad(t, world, { ...(await fault()), forMs: scaled(1000, 5000) })
      await expectRecorded(t, pair!.primary.url, refusedIds(outcome.samples.unknown))
      outcomes.push(outcome)
    }
    return outcomes
  }

  t.test('the primary killed, its standby promoted: nothing is lost, and the service finds it', async (t) => {
    const outcomes = await repeat(t, async () => {
      const [old, standby] = [pair.primary, await startStandby()]
      pair.primary = standby
      return { begin: () => old.kill(), end: () => standby.promote(), fates: onlyCached }
    })
    recordFigure(t, 'postgres-failover', figuresOf(outcomes))
  })

  t.test('new connections reach a standby for a while: writes are 503 until soon after', async (t) => {
    const standby = await startStandby()
    const outcomes = await repeat(t, async () => ({
      async begin() {
        address.retarget(standby.url)
        address.cut()
      },
      // The connections to the standby stay open.
      end: async () => address.retarget(pair.primary.url),
      fates: readOnly,
    }))
    recordFigure(t, 'postgres-standby', figuresOf(outcomes))
    await standby.retire()
  })

  t.test(
    'the primary made read-only, its connections open: writes are 503 until a new one is there',
    async (t) => {
      let old = pair.primary
      const outcomes = await repeat(t, async () => {
        const standby = await startStandby()
        const demoted = pair.primary
        if (old !== demoted) await old.stop()
        old = demoted
        pair.primary = standby
        return { begin: () => makeReadOnly(t, demoted.url), end: () => standby.promote(), fates: readOnly }
      })
      recordFigure(t, 'postgres-read-only', figuresOf(outcomes))
    },
  )
}

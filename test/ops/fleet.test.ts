// What all instances answer in a second, from two reports of each.
import t from 'tap'
import { createFleet, type FleetView } from '../../src/ops/fleet.ts'
import { type LiveSourcesOptions, liveSources } from '../../src/ops/live-sources.ts'
import { type Instance, type InstanceReport, Unavailable } from '../../src/stores.ts'

const traffic = (monoS: number, requests: number, refused = 0) => ({
  monoS,
  answers: [0, 0, requests, 0, refused, 0],
  rateLimited: 3 * refused,
  refused,
  latencies: [requests, refused],
})

const instance = (id: string, monoS: number, requests: number, refused = 0): Instance => ({
  ...{ id, version: '1.0.0', startedAt: 0, seenAt: 2000 + monoS, silentS: 0.5 },
  ...{ counting: 'shared', postgres: 'ok', traffic: traffic(monoS, requests, refused) },
})

/**
 * Reads that find these instances, one after the other. `null`: Postgres is down. The one that reads has
 * started last, and has no traffic.
 */
async function views(...listed: (Instance[] | null)[]) {
  let monoS = 0
  const fleet = createFleet({
    instances: {
      async list() {
        const found = listed.shift()
        if (!found) throw new Unavailable('down')
        return found
      },
    },
    own: (): InstanceReport => ({ ...instance('ins_own', ++monoS, 0), uptimeS: 60 }),
  })
  const seen = []
  for (let n = listed.length; n > 0; n--) seen.push(await fleet.read('operator:ada'))
  return seen
}

t.test('rates are the sum over instances, each by its own two last reports', async (t) => {
  const [first, second, same] = await views(
    [instance('ins_1', 100, 50), instance('ins_2', 100, 7)],
    [instance('ins_1', 101, 60, 2), instance('ins_2', 102, 27, 4), instance('ins_3', 102, 999)],
    [instance('ins_1', 101, 60, 2), instance('ins_2', 102, 27, 4), instance('ins_3', 103, 1000)],
  )
  t.strictSame(first!.rates, { answers: [], rateLimited: 0, refused: 0, latencies: [] })
  t.match(second, { complete: true, instances: [{ id: 'ins_1', isAlive: true }, {}, {}, { id: 'ins_own' }] })
  t.strictSame(second!.rates, {
    answers: [0, 0, 20, 0, 4, 0],
    rateLimited: 12,
    refused: 4,
    latencies: [30, 6],
  })
  t.strictSame(same!.rates.answers, [0, 0, 21, 0, 4, 0])
})

t.test('the traffic of an instance that has missed two reports is not added any more', async (t) => {
  const [, second, third] = await views(
    [instance('ins_1', 100, 50), instance('ins_2', 100, 7)],
    [{ ...instance('ins_1', 101, 60), silentS: 2.4 }, instance('ins_2', 101, 8)],
    [{ ...instance('ins_1', 101, 60), silentS: 2.6 }, instance('ins_2', 102, 28)],
  )
  t.equal(second!.rates.answers[2], 11)
  t.match(third, { instances: [{ isAlive: true }, {}, {}], rates: { answers: { 2: 20 } } })
})

t.test('a silent instance is not alive and adds nothing, nor does what happened long ago', async (t) => {
  const silent = { ...instance('ins_1', 101, 60), silentS: 6 }
  const [, second, later] = await views(
    [instance('ins_1', 100, 50), instance('ins_2', 100, 7)],
    [silent, instance('ins_2', 101, 8)],
    [instance('ins_2', 3600, 9000)],
  )
  t.match(second!.instances, [{ isAlive: false }, { isAlive: true }, {}])
  t.equal(second!.rates.answers[2], 1)
  t.equal(later!.rates.answers[2], 0)
  t.match(later!.instances, { length: 2, 0: { id: 'ins_2' } }, 'one that has stopped is gone')
})

t.test('rates are of half a second at least, and of the last one, however often it is read', async (t) => {
  const requests = [0, 0, 0, 0, 100, 200, 300]
  const seen = await views(...requests.map((sent, i) => [instance('ins_1', 100 + i * 0.4, sent)]))
  const rates = seen.map(({ rates }) => Math.round(rates.answers[2] ?? -1))
  t.strictSame(rates, [-1, 0, 0, 0, 125, 167, 250])
})

t.test('a report that reaches Postgres late changes no rate', async (t) => {
  const late = { ...instance('ins_1', 100, 50), seenAt: 2100.9 }
  const [, second] = await views([late], [instance('ins_1', 101, 150)])
  t.equal(second!.rates.answers[2], 100)
})

t.test('without Postgres there is this instance, and it is alive if Postgres takes no report', async (t) => {
  const silent = { ...instance('ins_own', 0, 0), seenAt: 1000, silentS: 3600 }
  const [first, second, down] = await views([silent], [silent], null)
  t.match(first!.instances, { length: 1, 0: { id: 'ins_own', isAlive: true, seenAt: 1000, silentS: 3600 } })
  t.equal(second!.rates.answers[2], 0, 'its traffic is that of its last second all the same')
  t.match(down, { complete: false, instances: { length: 1, 0: { id: 'ins_own', isAlive: true } } })
  t.equal(down!.rates.answers[2], 0)
  const [own] = down!.instances
  t.equal(Math.round(own!.seenAt - own!.startedAt), 60)
})

t.test('rates are complete once each instance has reported twice since Postgres was down', async (t) => {
  const at = (monoS: number) => [instance('ins_1', monoS, 10 * monoS)]
  const seen = await views(at(100), at(101), null, at(103), at(104))
  t.strictSame(
    seen.map(({ ratesComplete }) => ratesComplete),
    [false, true, false, false, true],
  )
})

t.test('a report from before the last one, as after a failover, gives no rates', async (t) => {
  const [, back] = await views([instance('ins_1', 105, 90)], [instance('ins_1', 104, 80)])
  t.strictSame(back!.rates, { answers: [0, 0, 0, 0, 0, 0], rateLimited: 0, refused: 0, latencies: [0, 0] })
})

t.test('5 s of silence are still alive, and reports 10 s apart give no rates', async (t) => {
  const silent = (silentS: number) => ({ ...instance(`ins_${silentS}`, 100, 1), silentS })
  const [view] = await views([silent(5), silent(5.01)])
  t.match(view!.instances, [{ isAlive: true }, { isAlive: false }, {}])
  const [, later] = await views(
    [instance('ins_1', 100, 50), instance('ins_2', 100, 50)],
    [instance('ins_1', 108, 58), instance('ins_2', 110, 70)],
  )
  t.equal(later!.rates.answers[2], 1)
})

t.test('the dashboard shows 5xx as errors, 429 and 401 apart, and latencies in milliseconds', async (t) => {
  const latencies = [50, 45, 5]
  const rates = { answers: [0, 0, 90, 0, 9, 1], rateLimited: 3, refused: 2, latencies }
  const view: Partial<FleetView> = { rates, ratesComplete: false }
  const { traffic } = liveSources({
    service: { stores: {} },
    fleet: { read: async () => view },
  } as unknown as LiveSourcesOptions)
  const { at, ...shown } = (await traffic())!
  t.ok(at > 1e9)
  const numbers = { requests: 100, refused: 2, limited: 3, errors: 1, p50_ms: 0.5, p99_ms: 2.2 }
  t.strictSame(shown, { complete: false, ...numbers })
})

t.test('an internal error of a reading does not look like a Postgres outage', async (t) => {
  const list = async () => Promise.reject(new TypeError('ours'))
  const own = () => ({ ...instance('ins_own', 0, 0), uptimeS: 60 })
  await t.rejects(createFleet({ instances: { list }, own }).read('operator:ada'), { message: 'ours' })
})

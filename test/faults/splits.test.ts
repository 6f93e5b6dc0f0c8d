// Two links fail at once: the instance that revokes a key cannot reach Redis, and the other one has
// lost Postgres or gets its answers late. A revocation is answered only once it holds there, too.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { until } from '../process/until.ts'
import { startPrivateRedis, startTcpProxy, useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { chanceOf } from './chance.ts'
import { changesOf, makePeople, type Person } from './changes.ts'
import { startFleet, untilShared, verify } from './fleet.ts'
import { startNetwork } from './network.ts'

const outageCacheS = scaled(3, 20)
const keysAtOnce = scaled(4, 20)
/** How long the other instance is asked after an answer. */
const afterMs = scaled(1000, 3000)

interface Asked {
  status: number
  sentMs: number
}

const chance = chanceOf(t)
const redis = await startPrivateRedis(t)
if (redis !== null) {
  const { databaseUrl } = await useServices(t)
  const network = await startNetwork(t, redis.url)
  const postgres = await startTcpProxy(t, databaseUrl)
  const fleet = await startFleet(t, redis.url, {
    env: {
      DATABASE_URL: databaseUrl,
      KEY_CACHE_SECONDS: '1',
      OUTAGE_CACHE_SECONDS: String(outageCacheS),
    },
    each: [{ REDIS_URL: network.url }, { DATABASE_URL: postgres.url }],
  })
  const [one, other] = fleet.urls as [string, string]
  const figures = { changes: 0, requests: 0, admitted: 0, unconfirmed: 0, slowestS: 0 }

  async function revokeWhile(t: Test, person: Person, healed: Promise<unknown>) {
    const { token } = person.key
    const { make } = changesOf(person).revocation()
    const asked: Asked[] = []
    const ask = async () => {
      const sentMs = performance.now()
      asked.push({ sentMs, status: (await verify(other, token)).status })
    }
    let isOver = false
    const asking = (async () => {
      while (!isOver) {
        await ask()
        await pause(10)
      }
    })()
    await chance.pause(0, 1000)
    const startedMs = performance.now()
    // A 503 says that it is stored, and not yet confirmed everywhere: repeat the request.
    let status = await make(one)
    for (; status === 503; status = await make(one)) figures.unconfirmed++
    t.equal(status, 200)
    const answeredMs = performance.now()
    await pause(afterMs)
    await healed
    await until('the key is refused', async () => (await verify(other, token)).status === 401)
    isOver = true
    await asking
    const since = (ms: number) => asked.filter(({ sentMs }) => sentMs >= ms)
    const late = since(answeredMs)
    t.same(
      late.filter(({ status }) => status === 200),
      [],
      'nothing that began after the answer is admitted',
    )
    figures.changes++
    figures.requests += late.length
    figures.admitted += late.filter(({ status }) => status === 200).length
    figures.slowestS = Math.max(figures.slowestS, Math.ceil((answeredMs - startedMs) / 100) / 10)
    return since(startedMs).filter(({ status }) => status === 200).length
  }

  const briefly: [string, () => void][] = [
    ['gets no answer from Postgres', () => postgres.blackHole()],
    ['gets the answers of Postgres 400 ms late', () => postgres.delay(400)],
  ]
  const refused = () => {
    postgres.refuse()
    postgres.cut()
  }
  const fully: typeof briefly = [...briefly, ['is refused by Postgres', refused]]

  for (const [name, begin] of soaking ? fully : briefly) {
    t.test(`a key is revoked on an instance without Redis while the other ${name}`, async (t) => {
      for (let round = 0; round < scaled(1, 3); round++) {
        await untilShared(fleet.instances)
        const people = await makePeople(fleet, keysAtOnce)
        await network.blackHole()
        begin()
        const healed = pause(outageCacheS * 1000 + 3000).then(() => postgres.heal())
        const admitted = await Promise.all(people.map((person) => revokeWhile(t, person, healed)))
        t.ok(Math.max(...admitted) > 0, 'the other instance used its copies before the answer')
        await network.heal()
      }
    })
  }

  t.test('the figures of all', async (t) => {
    t.ok(figures.changes > 0)
    recordFigure(t, 'splits', figures)
  })
}

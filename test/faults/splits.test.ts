// Two links fail at once: the instance that revokes a key cannot reach Redis, and the other one has
// lost Postgres or gets its answers late. A revocation is answered only once it holds there, too.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { startPrivateRedis, startTcpProxy, useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { chanceOf } from './chance.ts'
import { changesOf, figuresOf, makePeople, type Person, type Watched, watchChange } from './changes.ts'
import { startFleet, untilShared } from './fleet.ts'
import { startNetwork } from './network.ts'

const outageCacheS = scaled(3, 20)
const keysAtOnce = scaled(4, 20)
/** How long the other instance is asked after an answer. */
const afterMs = scaled(1000, 3000)

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
  const watched: Watched[] = []

  async function revokeDuring(fault: Promise<unknown>, person: Person): Promise<Watched> {
    const { make, ...rest } = changesOf(person).revocation()
    // A 503 says that it is stored, and not yet confirmed everywhere: repeat the request.
    async function untilConfirmed(url: string): Promise<number> {
      const status = await make(url)
      return status === 503 ? untilConfirmed(url) : status
    }
    const change = { ...rest, make: untilConfirmed }
    const start = () => chance.pause(0, 1000)
    return watchChange(fleet, 0, change, { start, busy: true, everyMs: 10, forMs: afterMs, during: fault })
  }

  /** The other instance used its copy after the request for the change, as it may before the answer. */
  const usedCopy = ({ answers, sentMs }: Watched) =>
    answers.some((one) => one.target === 1 && one.old && one.sentMs >= sentMs)

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
        const changes = await Promise.all(people.map((person) => revokeDuring(healed, person)))
        t.ok(changes.some(usedCopy), 'the other instance used its copies before the answer')
        t.equal(figuresOf(changes).old, 0, 'nothing that began after the answer is admitted')
        t.ok(changes.every(({ status }) => status === 200))
        watched.push(...changes)
        await network.heal()
      }
    })
  }

  t.test('the figures of all splits are recorded', async (t) => {
    t.ok(watched.length > 0)
    recordFigure(t, 'splits', figuresOf(watched))
  })
}

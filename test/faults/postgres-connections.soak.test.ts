// The service's connections to Postgres ended over and over, all slots taken by others, and all of a pool's held up.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Answer } from '../instance.ts'
import { type Load, startLoad, statuses } from '../load.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { smallDatabase, takeConnections } from './postgres-crowd.ts'
import { everything, numbersOf, type Outcome, onlyCached, underLoad } from './postgres-fault.ts'
import { connectTo, makeKeys, startWorld } from './postgres-world.ts'

const server = await startPrivatePostgres(t)
const databaseUrl = await smallDatabase(t, server.url)
const world = await startWorld(t, databaseUrl)

const operator = connectTo(t, server.url)
/** As an operator does; answers how many there were. */
const endConnections = async () => {
  const ended = await operator`
    select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'latchkey %'`
  return ended.length
}

t.test(
  'all connections ended over and over under load: keys in use go on, the rest is right or 503',
  async (t) => {
    let ended = 0
    let ending = true
    let over = Promise.resolve()
    t.teardown(() => {
      ending = false
      return over
    })
    async function endAgainAndAgain() {
      while (ending) {
        ended += await endConnections()
        await pause(50)
      }
    }
    const outcome = await underLoad(t, world, {
      async away() {
        over = endAgainAndAgain()
      },
      async back() {
        ending = false
        await over
      },
      forMs: scaled(2000, 120_000),
      fates: { ...everything, listing: 'falters', writing: 'falters', unknown: 'falters', fresh: 'falters' },
    })
    t.ok(ended > scaled(10, 500), `${ended} connections ended`)
    recordFigure(t, 'postgres-terminated', { ended, ...numbersOf([outcome]) })
  },
)

t.test(
  'every connection of the database taken by others: keys in use go on, all else is 503 until some leave',
  async (t) => {
    const outcomes: Outcome[] = []
    for (let round = 0; round < scaled(1, 5); round++) {
      let leave = async () => {}
      t.teardown(() => leave())
      outcomes.push(
        await underLoad(t, world, {
          async away() {
            leave = await takeConnections(t, databaseUrl, endConnections)
          },
          back: () => leave(),
          forMs: scaled(1500, 10_000),
          fates: onlyCached,
        }),
      )
    }
    recordFigure(t, 'postgres-full', numbersOf(outcomes))
  },
)

/** Locks a key against changes; answers how to let go of it. */
function lockKey(t: Test, id: string): Promise<() => void> {
  const sql = connectTo(t, databaseUrl)
  return new Promise((resolve, reject) => {
    sql
      .begin(async (tx) => {
        await tx`select from api_keys where id = ${id} for update`
        await new Promise<void>((release) => resolve(release))
      })
      .catch(reject)
  })
}

t.test('connections that end in the middle of a statement leave nothing to the next one', async (t) => {
  const { instance, userId } = world
  const [caller, locked] = await makeKeys(instance, userId, 2)
  const { token } = caller!
  t.equal((await instance.ask('GET', '/v1/keys', { token })).status, 200)
  const unlock = await lockKey(t, locked!.id)
  const held = Array.from({ length: 4 }, () => instance.ask('DELETE', `/v1/keys/${locked!.id}`, { token }))
  await until('every connection for management is held up', async () => {
    const waiting = await operator`select from pg_stat_activity
      where application_name = 'latchkey management' and wait_event_type = 'Lock'`
    return waiting.length === held.length
  })
  await endConnections()
  const statusesOf = async (asked: Promise<Answer>[]) =>
    (await Promise.all(asked)).map(({ status }) => status)
  t.strictSame(await statusesOf(held), [503, 503, 503, 503])
  unlock()
  // More at once than there are connections, so that each of them is used.
  const lists = Array.from({ length: 20 }, () => instance.ask('GET', '/v1/keys', { token }))
  t.strictSame([...new Set(await statusesOf(lists))], [200])
})

t.test('all connections for management held up by a lock: authentication knows nothing of it', async (t) => {
  const { instance, userId } = world
  const [caller, locked] = await makeKeys(instance, userId, 2)
  let holders: Load | undefined
  let unlock = () => {}
  const outcome = await underLoad(t, world, {
    async away() {
      unlock = await lockKey(t, locked!.id)
      holders = startLoad(t, {
        ...{ urls: [instance.url], tokens: [caller!.token], perSecond: 40 },
        ...{ method: 'DELETE', path: `/v1/keys/${locked!.id}` },
      })
    },
    back: async () => unlock(),
    forMs: scaled(2000, 30_000),
    fates: { ...everything, listing: 'falters', writing: 'falters' },
  })
  t.ok((statuses(outcome.samples.listing)[503] ?? 0) > 0, 'a list found no connection free')
  const held = await holders!.stop()
  t.strictSame(Object.keys(statuses(held)), ['200', '503'], 'what is held up is 503, and done once it is not')
  t.equal((await instance.ask('GET', '/v1/verify', { token: locked!.token })).status, 401)
  recordFigure(t, 'postgres-pool', numbersOf([outcome]))
})

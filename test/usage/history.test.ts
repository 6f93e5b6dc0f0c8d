// The last two minutes of a key's usage come from the counter: they may not be stored yet.
import Fastify from 'fastify'
import t from 'tap'
import { usageRoute } from '../../src/http/routes/usage.ts'
import { serverOptions } from '../../src/http/server-options.ts'
import type { StoredKey } from '../../src/stores.ts'
import { createUsageHistory, type UsageHistoryOptions } from '../../src/usage/history.ts'

const minute = 28_000_000
const key = { id: 'apk_1', rateLimitRpm: 5, createdAt: 0 }
/** A counter at the start of `minute`, which has seen nothing. */
const idle: UsageHistoryOptions['counter'] = {
  now: async () => minute * 60_000,
  countsOf: async () => ({ counts: [0, 0], mode: 'shared' }),
  mayLackCounts: () => false,
}

t.test('this minute and the last are counted live, if there were requests', async (t) => {
  for (const [counts, expected] of [
    [
      [7, 3],
      [
        { start: (minute - 1) * 60, requests: 7, limited: 2 },
        { start: minute * 60, requests: 3, limited: 0 },
      ],
    ],
    [[1, 0], [{ start: (minute - 1) * 60, requests: 1, limited: 0 }]],
    [[0, 0], []],
  ] as const) {
    const counter: UsageHistoryOptions['counter'] = {
      ...idle,
      now: async () => minute * 60_000 + 999,
      countsOf: async (_id, asked) => {
        t.strictSame(asked, [minute - 1, minute])
        return { counts: [...counts], mode: 'shared' }
      },
    }
    let given: unknown
    const read: UsageHistoryOptions['usage']['read'] = async (_id, _range, { live, nowS }) => {
      given = { live, nowS }
      return { data: [], incomplete: [], createdAt: 0 }
    }
    const history = createUsageHistory({ usage: { read }, counter })
    await history.read(key, {})
    t.strictSame(given, { live: expected, nowS: minute * 60 })
  }
})

t.test('the store learns whether the live counts are those of this instance alone', async (t) => {
  const given: boolean[] = []
  const read: UsageHistoryOptions['usage']['read'] = async (_id, _range, { isLocal }) => {
    given.push(isLocal)
    return { data: [], incomplete: [], createdAt: 0 }
  }
  for (const mode of ['shared', 'local', 'memory'] as const) {
    const counter = { ...idle, countsOf: async () => ({ counts: [0, 0], mode }) }
    await createUsageHistory({ usage: { read }, counter }).read(key, {})
  }
  t.strictSame(given, [false, true, false])
})

t.test('a user who asks for much waits in a lane of their own', async (t) => {
  const lanes: (string | undefined)[] = []
  const usageHistory = createUsageHistory({
    usage: {
      async read(_id, _range, _now, lane) {
        lanes.push(lane)
        return { data: [], incomplete: [], createdAt: 0 }
      },
    },
    counter: idle,
  })
  const app = Fastify(serverOptions(() => 'req_1'))
  app.decorateRequest('caller', null)
  app.addHook('onRequest', async (request) => {
    Object.assign(request, { caller: { userId: 'usr_1' } })
  })
  await app.register(usageRoute, {
    keys: { get: async () => ({ id: 'apk_1', rateLimitRpm: 5 }) as StoredKey },
    usageHistory,
  })
  t.equal((await app.inject('/v1/keys/apk_1/usage')).statusCode, 200)
  t.strictSame(lanes, ['usr_1'])
})

t.test('a minute that is not stored yet is incomplete if its counts may have been lost', async (t) => {
  const dayS = Math.floor((minute * 60) / 86_400) * 86_400
  const lost = (minute - 1) * 60
  for (const [query, incomplete] of [
    [{ step: 'minute' }, [lost - 120, lost]],
    [{ step: 'minute', until: String(lost) }, [lost - 120]],
    [{ step: 'minute', since: String(lost) }, [lost - 120, lost]],
    [{ step: 'minute', since: String(lost + 60) }, [lost - 120]],
    [{ step: 'day' }, [dayS]],
  ] as const) {
    const history = createUsageHistory({
      usage: {
        read: async (_id, { step }) => ({
          data: [],
          incomplete: [step === 'day' ? dayS : lost - 120],
          createdAt: 0,
        }),
      },
      counter: { ...idle, mayLackCounts: (asked) => asked === minute - 1 },
    })
    const found = await history.read(key, query)
    const expected = [...incomplete].sort((a, b) => a - b)
    t.strictSame(found.ok && found.usage.incomplete, expected, JSON.stringify(query))
  }
})

t.test('counts lost before a key was created make none of its steps incomplete', async (t) => {
  const lost = minute - 1
  const counter = { ...idle, mayLackCounts: (asked: number) => asked === lost }
  for (const [createdAt, isIncomplete] of [
    [lost * 60 + 59, true],
    [lost * 60 + 60, false],
  ] as const) {
    const usage = { read: async () => ({ data: [], incomplete: [], createdAt }) }
    const history = createUsageHistory({ usage, counter })
    // By another clock.
    const found = await history.read({ ...key, createdAt: minute * 60 + 180 }, { step: 'day' })
    t.equal(found.ok && found.usage.incomplete.length > 0, isIncomplete)
  }
})

// Usage in Postgres: what is stored, rolled up, read and dropped.
import t from 'tap'
import { type UsageStep, usageStepS } from '../../schemas/bounds.ts'
import { dropUsagePartitions } from '../../src/postgres/partitions.ts'
import { createPool, type Pool } from '../../src/postgres/pool.ts'
import { createUsageStore } from '../../src/postgres/usage.ts'
import { newId } from '../../src/rules/id.ts'
import { poolBounds } from '../../src/wiring/pools.ts'
import { actor, newKeyOf, openStores } from './open-stores.ts'

const { keys, makeUser, makeKey, sql, url, whileUncommitted } = await openStores(t)
const pool = createPool({ url, purpose: 'test', max: 2, timeoutMs: 30_000 })
t.teardown(() => pool.close())
const usage = createUsageStore({ management: pool, usage: pool, rollups: pool })
const user = await makeUser()

/** Midnight of today (UTC), in minutes: partitions are there for yesterday and the coming week. */
const midnight = Math.floor(Date.now() / 86_400_000) * 1440
const yesterday = midnight - 1440
const at = (minute: number) => minute * 60
const read = (
  keyId: string,
  step: UsageStep,
  [first, last]: [number, number],
  { now = last, live = [] as number[], isLocal = false, createdAt = 0 } = {},
) =>
  usage.read(
    { id: keyId, createdAt },
    { step, sinceS: at(first), untilS: at(last) },
    {
      nowS: at(now),
      live: live.map((requests, i) => ({ start: at(now - i), requests, limited: 0 })),
      isLocal,
    },
  )
const point = (minute: number, requests: number, limited = 0) => ({ start: at(minute), requests, limited })

t.test('storing again changes nothing, a higher count replaces a lower one', async (t) => {
  const [key, other] = [await makeKey(user.id), await makeKey(user.id)]
  const store = (count: number) => usage.store(midnight, [{ keyId: key.id, count }])
  await usage.store(midnight, [
    { keyId: key.id, count: 1200 },
    { keyId: other.id, count: 1 },
  ])
  const stored = () => read(key.id, 'minute', [midnight, midnight + 1])
  t.strictSame((await stored()).data, [point(midnight, 1200, 200)], 'the limit is 1000')
  await store(1200)
  await store(7)
  t.strictSame((await stored()).data, [point(midnight, 1200, 200)])
  await sql`update api_keys set rate_limit_rpm = 100 where id = ${key.id}`
  await store(1200)
  t.strictSame((await stored()).data, [point(midnight, 1200, 200)], 'a later limit changes nothing either')
  await store(1201)
  t.strictSame((await stored()).data, [point(midnight, 1201, 1101)])
  t.strictSame((await read(other.id, 'minute', [midnight, midnight + 1])).data, [point(midnight, 1)])
})

t.test('counts are stored in the order of the ids, in whatever order they were found', async (t) => {
  const made = [newKeyOf(user.id).key, newKeyOf(user.id).key]
  // In the table of keys they have the other order too.
  for (const key of made.toReversed()) await keys.create(key, actor())
  const counts = made.map(({ id }) => ({ keyId: id, count: 1 }))
  await usage.store(midnight, counts)
  const [first, second] = counts.map(
    ({ keyId }) => sql`select from key_usage where key_id = ${keyId} for update nowait`,
  )
  const stored = whileUncommitted(
    (tx) => tx`${first!}`,
    () => usage.store(midnight, counts.toReversed()),
    (tx) => tx`${second!}`,
  )
  await t.resolves(stored, 'two instances do not wait for each other')
})

t.test('what is no key of ours is left out, and a count beyond any count is cut', async (t) => {
  const key = await makeKey(user.id)
  await usage.store(midnight, [
    { keyId: newId('apk_'), count: 1 },
    { keyId: "x'); drop table key_usage; --", count: 1 },
    { keyId: key.id, count: 1e15 },
  ])
  t.match(await read(key.id, 'minute', [midnight, midnight + 1]), { data: [{ requests: 2_147_483_647 }] })
  t.strictSame((await read("' or true --", 'minute', [midnight, midnight + 1])).data, [])
})

t.test('finishing a minute again does not reopen it', async (t) => {
  const key = await makeKey(user.id)
  const minute = yesterday + 40
  await usage.claim(minute)
  await usage.store(minute, [{ keyId: key.id, count: 3 }])
  await usage.report(minute, { requests: 3 })
  t.equal(await usage.finish(minute, { whole: true, done: true }), true)
  await usage.finish(minute, { whole: false, done: false })
  t.equal(await usage.claim(minute), 'done')
  // That a process began to count in it may be stored late.
  for (const unreported of [1, -1]) await usage.report(minute, { requests: 0, unreported })
  t.strictSame((await read(key.id, 'minute', [minute, minute + 1], { now: minute + 2 })).incomplete, [])
})

t.test('what was stored whole is not lost with a later pass that is not', async (t) => {
  const key = await makeKey(user.id)
  const minute = yesterday + 50
  const incomplete = async () =>
    (await read(key.id, 'minute', [minute, minute + 1], { now: minute + 2 })).incomplete
  const begin = () => usage.report(minute, { requests: 0, unreported: 1 })
  const end = (requests: number) => usage.report(minute, { requests, unreported: -1 })
  await begin()
  await usage.store(minute, [{ keyId: key.id, count: 3 }])
  await end(3)
  t.equal(await usage.finish(minute, { whole: true, done: false }), true)
  t.equal(await usage.finish(minute, { whole: false, done: false }), true)
  t.strictSame(await incomplete(), [])
  await begin()
  t.equal(await usage.finish(minute, { whole: false, done: false }), false)
  t.strictSame(await incomplete(), [at(minute)], 'another process has begun to count')
  await end(0)
  t.equal(await usage.finish(minute, { whole: true, done: false }), true)
  t.equal(await usage.finish(minute, { whole: false, done: true }), true)
  await usage.report(minute, { requests: 1 })
  t.strictSame(await incomplete(), [at(minute)], 'a request that is reported later is missing')
  // As by a clock that was ahead, while the process counts on.
  const ahead = midnight + 1440
  await usage.report(ahead, { requests: 0, unreported: 1 })
  t.equal(await usage.finish(ahead, { whole: true, done: true }), true)
  t.equal(await usage.finish(ahead, { whole: false, done: true }), false)
})

t.test('one claims a minute; another one if the first has stored nothing of it for a while', async (t) => {
  const minute = yesterday + 10
  t.equal(await usage.claim(minute), 'claimed')
  t.equal(await usage.claim(minute), 'taken')
  const ago = () =>
    sql`update usage_minutes set claimed_until = clock_timestamp() - interval '1 ms' where starts_at = to_timestamp(${at(minute)})`
  await ago()
  t.equal(await usage.claim(minute), 'claimed')
  const [claim] =
    await sql`select claimed_until - clock_timestamp() between '8 s' and '15 s' as is_long from usage_minutes where starts_at = to_timestamp(${at(minute)})`
  t.equal(claim!.is_long, true, 'long enough for a slow statement')
  await ago()
  await usage.store(minute, [])
  t.equal(await usage.claim(minute), 'taken', 'storing prolongs the claim')
  await usage.finish(minute, { whole: true, done: false })
  t.equal(await usage.claim(minute), 'claimed', 'the minute went on')
  await usage.finish(minute, { whole: true, done: true })
  t.equal(await usage.claim(minute), 'done')
})

t.test('a minute is incomplete if fewer requests are stored than were reported', async (t) => {
  const key = await makeKey(user.id)
  const minute = yesterday + 20
  const incomplete = async () =>
    (await read(key.id, 'minute', [minute, minute + 1], { now: minute + 2 })).incomplete
  t.strictSame(await incomplete(), [], 'nobody has counted')
  await usage.report(minute, { requests: 3 })
  t.strictSame(await incomplete(), [at(minute)], 'nothing is stored')
  await usage.store(minute, [{ keyId: key.id, count: 5 }])
  t.equal(await usage.finish(minute, { whole: false, done: false }), false)
  t.strictSame(await incomplete(), [at(minute)], 'not every counter was read')
  t.equal(await usage.finish(minute, { whole: true, done: true }), true)
  t.strictSame(await incomplete(), [])
  await usage.report(minute, { requests: 2 })
  t.strictSame(await incomplete(), [])
  await usage.report(minute, { requests: 1 })
  t.strictSame(await incomplete(), [at(minute)], 'one request was counted that is not stored')
  for (const step of ['hour', 'day'] as const) {
    const start = at(minute) - (at(minute) % usageStepS[step])
    const range = [start / 60, start / 60 + usageStepS[step] / 60] as [number, number]
    t.strictSame((await read(key.id, step, range)).incomplete, [start], step)
  }
  t.strictSame(
    (await read(key.id, 'minute', [minute, minute + 1])).incomplete,
    [at(minute)],
    'the last minute too: it is done',
  )
  await sql`update usage_minutes set is_done = false where starts_at = to_timestamp(${at(minute)})`
  t.strictSame(
    (await read(key.id, 'minute', [minute, minute + 1])).incomplete,
    [],
    'the last minute may be stored yet',
  )
  for (const now of [minute + 1, minute])
    t.strictSame(
      (await read(key.id, 'minute', [minute, minute + 1], { now, isLocal: true })).incomplete,
      [at(minute)],
      'of a minute that is not stored, the counts of one instance are not all',
    )
})

t.test('what was lost before a key was created makes none of its steps incomplete', async (t) => {
  // Of tomorrow: a counting clock that is not behind.
  const lost = midnight + 1440 + 35
  await usage.report(lost, { requests: 1 })
  for (const [step, range] of [
    ['minute', [lost, lost + 1]],
    ['hour', [midnight + 1440, midnight + 1500]],
    ['day', [midnight + 1440, midnight + 2880]],
  ] as const)
    for (const [createdAt, isIncomplete] of [
      [at(lost) + 59, true],
      [at(lost) + 60, false],
    ] as const) {
      const { incomplete } = await read('apk_1', step, [...range], { now: lost + 2, createdAt })
      t.equal(incomplete.includes(at(range[0])), isIncomplete, `${step} ${createdAt - at(lost)}`)
    }
})

t.test('a key was not created later than the counting clock says, which may be behind', async (t) => {
  const minute = Math.floor(Date.now() / 60_000) - 5
  const now = minute + 2
  await usage.report(minute, { requests: 1 })
  for (const [passedS, isIncomplete] of [
    [100, true],
    [30, false],
  ] as const) {
    // By the clock of Postgres.
    const createdAt = Date.now() / 1000 - passedS
    const { incomplete, createdAt: counted } = await read('apk_1', 'minute', [minute, now], {
      now,
      createdAt,
    })
    t.equal(incomplete.includes(at(minute)), isIncomplete)
    t.ok(Math.abs(counted - (at(now) - passedS)) < 5)
  }
})

t.test('what was stored of the last minute is not judged by a later limit', async (t) => {
  const key = await makeKey(user.id)
  const minute = midnight + 25
  await usage.store(minute, [{ keyId: key.id, count: 1200 }])
  const withLive = async (requests: number, limited: number) => {
    const range = { step: 'minute', sinceS: at(minute), untilS: at(minute + 1) } as const
    const live = [{ start: at(minute), requests, limited }]
    return (await usage.read(key, range, { nowS: at(minute + 1), live, isLocal: false })).data
  }
  t.strictSame(await withLive(1200, 1100), [point(minute, 1200, 200)])
  t.strictSame(await withLive(1200, 0), [point(minute, 1200, 200)])
  t.strictSame(await withLive(7, 7), [point(minute, 1200, 200)])
  t.strictSame(await withLive(1300, 300), [point(minute, 1300, 300)], 'the counter knows of more')
  const untilS = at(minute)
  const live = [{ start: untilS, requests: 7, limited: 0 }]
  const before = { step: 'minute', sinceS: untilS - 60, untilS } as const
  const { data } = await usage.read(key, before, { nowS: at(minute + 1), live, isLocal: false })
  t.strictSame(data, [], 'nor is it part of a history that ends before it')
})

t.test('hours and days are the sums of their minutes, before and after they are rolled up', async (t) => {
  const key = await makeKey(user.id)
  const day = yesterday
  const used: [minute: number, requests: number][] = [
    [day, 1],
    [day + 59, 1100],
    [day + 60, 4],
    [day + 1439, 8],
    [midnight, 16],
    [midnight + 3, 32],
  ]
  for (const [minute, count] of used) await usage.store(minute, [{ keyId: key.id, count }])
  const hour = (n: number, requests: number, limited = 0) => point(day + n * 60, requests, limited)

  /** As at this minute, of which 64 requests are in the counter only. */
  const expectHistory = async (now: number, rolledUp: string) => {
    const live = { now, live: [64] }
    const days = await read(key.id, 'day', [day, midnight + 1440], live)
    t.strictSame(days.data, [point(day, 1113, 100), point(midnight, 112)], `days ${rolledUp}`)
    const recent = await read(key.id, 'hour', [midnight - 60, midnight + 60], live)
    t.strictSame(recent.data, [hour(23, 8), hour(24, 112)], `recent hours ${rolledUp}`)
  }
  const rollUp = async (minute: number) => {
    let count = 0
    while (await usage.rollUp(at(minute))) count++
    return count
  }
  await expectHistory(midnight + 4, 'of which nothing is rolled up')
  const early = await read(key.id, 'hour', [day, day + 120], { now: midnight + 4 })
  t.strictSame(early.data, [hour(0, 1101, 100), hour(1, 4)], 'hours long ago, not rolled up either')
  t.equal(await rollUp(day + 62), 0, 'an hour that has just ended may not be stored yet')
  t.equal(await rollUp(midnight - 1), 2)
  await expectHistory(midnight + 4, 'of which the last hour is not rolled up')
  t.equal(await rollUp(midnight + 2), 0, 'a day is not rolled up without its last hour')
  t.equal(await rollUp(midnight + 4), 2, 'the last hour and the day')
  await expectHistory(midnight + 4, 'rolled up')
  t.equal(await rollUp(midnight + 4), 0)
  const hours = await read(key.id, 'hour', [day, midnight + 1440])
  t.strictSame(hours.data.slice(0, 3), [hour(0, 1101, 100), hour(1, 4), hour(23, 8)])
})

t.test('of the first day ever, an hour that nobody has rolled up counts', async (t) => {
  await sql`truncate key_usage, key_usage_hours, key_usage_days`
  const [key, other] = [await makeKey(user.id), await makeKey(user.id)]
  await usage.store(yesterday + 5, [{ keyId: key.id, count: 3 }])
  const days = async () =>
    (await read(key.id, 'day', [yesterday, midnight + 3 * 1440], { now: midnight + 2 * 1440 + 5 })).data
  t.strictSame(await days(), [point(yesterday, 3)])
  for (const [table, ago] of [
    ['key_usage_hours', '30 minutes'],
    ['key_usage_days', '20 hours'],
  ] as const)
    await sql`insert into ${sql(table)} values (now() - ${ago}::text::interval, 1, 0, ${other.id})`
  t.strictSame(await days(), [point(yesterday, 3)], 'whatever a clock that was ahead has rolled up')
  await sql`insert into key_usage_hours values (to_timestamp(${at(yesterday)}), 4, 0, ${key.id})`
  t.strictSame(await days(), [point(yesterday, 4)], 'also of hours that are rolled up, and their day is not')
})

t.test('if an instance has not reported, a minute that may lack counts is incomplete', async (t) => {
  const minute = yesterday + 30
  const incomplete = async () =>
    (await read('apk_1', 'minute', [minute, minute + 1], { now: minute + 2 })).incomplete
  for (let n = 0; n < 3; n++) await usage.report(minute, { requests: 0, unreported: 1 })
  t.equal(await usage.finish(minute, { whole: true, done: false }), false)
  t.strictSame(await incomplete(), [at(minute)], 'one has stopped, and the others count on')
  await usage.report(minute - 1, { requests: 0, unreported: 1 })
  t.equal(
    await usage.finish(minute - 1, { whole: true, done: true }),
    true,
    'nothing shows that any are missing',
  )
  await usage.report(minute, { requests: 0, unreported: -1, mayLackCounts: true })
  t.equal(await usage.finish(minute, { whole: true, done: true }), false)
  t.strictSame(await incomplete(), [at(minute)])
  await usage.report(minute, { requests: 0, unreported: -1 })
  t.strictSame(await incomplete(), [at(minute)], 'one that lacks nothing does not vouch for the others')
  await usage.report(minute, { requests: 0, unreported: -1 })
  t.strictSame(await incomplete(), [], 'all have reported, and all is stored')
})

t.test(
  'minutes are dropped by whole days, only those that are rolled up; hours live for 400 days',
  async (t) => {
    await sql`truncate key_usage_hours, key_usage_days`
    const key = await makeKey(user.id)
    const days = [500, 450, 3, 2].map((ago) => midnight - ago * 1440)
    for (const day of days) {
      const [row] = await sql`select to_char(to_timestamp(${at(day)}) at time zone 'UTC', 'YYYYMMDD') as name`
      await sql`select create_day_partitions('key_usage', to_date(${row!.name}, 'YYYYMMDD'), to_date(${row!.name}, 'YYYYMMDD'))`
      await usage.store(day, [{ keyId: key.id, count: 1 }])
      await usage.report(day, { requests: 1 })
    }
    const drop = (days: number) => pool.run((sql) => dropUsagePartitions(sql, days))
    const nameOf = (day: number) => new Date(at(day) * 1000).toISOString().slice(0, 10).replaceAll('-', '')
    // By a clock that is ahead.
    await sql`insert into key_usage_hours values (now(), 1, 0, ${key.id})`
    t.strictSame(await drop(3), [], 'they are not rolled up')
    const starts = async (table: string) =>
      (
        await sql`select extract(epoch from starts_at)::float8 / 60 as minute from ${sql(table)} where starts_at <= to_timestamp(${at(days[3]!)}) order by 1`
      ).map(({ minute }) => minute)
    for (const _ of days) await usage.rollUp(at(midnight + 4))
    t.equal((await drop(460)).length, 1)
    await sql`insert into key_usage_days values (to_timestamp(${at(midnight)}), 1, 0, ${key.id})`
    t.strictSame(await drop(460), [])
    t.strictSame(await starts('key_usage_hours'), days, 'hours stay until their day is rolled up')
    while (await usage.rollUp(at(midnight + 4))) {}
    t.strictSame(await drop(460), [`key_usage_hours of ${nameOf(days[0]!)}`])
    t.strictSame(await drop(460), [])
    t.strictSame(await starts('key_usage_hours'), days.slice(1), 'hours are kept as long as minutes')
    await sql`
      insert into key_usage_hours
      select starts_at - interval '2 days', requests, limited, key_id from key_usage_hours order by starts_at limit 1`
    t.equal((await drop(2)).length, 2)
    t.strictSame(await starts('key_usage'), days.slice(3))
    const older = days[1]! - 2880
    t.strictSame(await starts('key_usage_hours'), [older, ...days.slice(1)], 'first the partitions')
    t.strictSame(await drop(2), [`key_usage_hours of ${nameOf(older)}`], 'then one day of hours')
    t.strictSame(await drop(2), [`key_usage_hours of ${nameOf(days[1]!)}`])
    t.strictSame(await drop(2), [])
    t.strictSame(await starts('key_usage_hours'), days.slice(2))
    t.strictSame(await starts('usage_minutes'), days, 'incomplete ones stay')
    await sql`update usage_minutes set stored = reported`
    t.strictSame(await drop(2), [])
    t.strictSame(await starts('usage_minutes'), days.slice(2))
    t.strictSame(await starts('key_usage_days'), days)
    await t.rejects(sql`select drop_usage_partitions(0)`, { message: /at least a day/ })
    await t.rejects(sql`select ensure_usage_partitions(32)`, { message: /at most 31 days/ })
  },
)

t.test('steps that have been dropped are incomplete', async (t) => {
  await sql`truncate key_usage_hours, key_usage_days, usage_minutes`
  const key = await makeKey(user.id)
  const incomplete = async (step: UsageStep, range: [number, number], createdAt = 0) => {
    // The end of the day: a counting clock that is not behind.
    const found = await read(key.id, step, range, { now: midnight + 1439, createdAt })
    return found.incomplete.map((start) => start / 60)
  }
  const [row] =
    await sql`select min(tablename) as name from pg_tables where tablename like 'key\\_usage\\_2%'`
  const first = Date.parse(row!.name.slice(-8).replace(/(....)(..)(..)/, '$1-$2-$3')) / 60_000
  t.strictSame(await incomplete('minute', [first - 2, first + 2]), [], 'nothing was counted')
  await sql`insert into key_usage_hours values (to_timestamp(${at(first)}), 1, 0, ${key.id})`
  t.strictSame(await incomplete('minute', [first - 2, first + 2]), [], 'no instance ran on the day before')
  await sql`insert into key_usage_hours values (to_timestamp(${at(first - 60)}), 1, 0, ${key.id})`
  t.strictSame(await incomplete('minute', [first - 2, first + 2]), [first - 2, first - 1])
  t.strictSame(await incomplete('minute', [first - 2, first + 2], at(first - 1) + 59), [first - 1])
  t.strictSame(await incomplete('minute', [first - 2, first + 2], at(first)), [], 'before it was created')
  t.strictSame(await incomplete('minute', [first, first + 2]), [])
  t.strictSame(await incomplete('minute', [midnight - 10, midnight]), [])
  await sql`select create_day_partitions('key_usage', '2020-01-01', '2020-01-01')`
  t.strictSame(await incomplete('minute', [first - 2, first + 2]), [first - 2, first - 1], 'one was left')
  await sql`drop table key_usage_20200101`
  const before = midnight - 401 * 1440
  t.strictSame(await incomplete('minute', [before, before + 1]), [before], 'hours are not stored either')

  await sql`truncate key_usage_hours`
  const kept = midnight - 400 * 1440
  const hours: [number, number] = [kept - 120, kept + 120]
  t.strictSame(await incomplete('hour', hours), [kept - 120, kept - 60])
  await sql`insert into key_usage_hours values (to_timestamp(${at(kept - 60)}), 1, 0, ${key.id})`
  t.strictSame(await incomplete('hour', hours), [kept - 120])
  await sql`update key_usage_hours set starts_at = now()`
  t.strictSame(await incomplete('hour', hours), [kept - 120, kept - 60], 'later ones were none')
  t.strictSame(await incomplete('day', [kept - 2880, kept]), [])

  const day = new Date(at(yesterday - 1440) * 1000).toISOString().slice(0, 10).replaceAll('-', '')
  await sql`drop table if exists ${sql(`key_usage_${day}`)}`
  await sql`insert into key_usage_hours values (to_timestamp(${at(yesterday - 60)}), 1, 0, ${key.id})`
  const around = await incomplete('minute', [yesterday - 1, yesterday + 1])
  t.strictSame(around, [yesterday - 1], 'minutes are kept for a day at least')
})

for (const [season, first] of [
  ['spring', '2026-03-28T00:00Z'],
  ['autumn', '2026-10-24T00:00Z'],
] as const)
  t.test(`a day has 24 hours where clocks change, in ${season}`, async (t) => {
    await sql`truncate key_usage, key_usage_hours, key_usage_days`
    const { id } = await makeKey(user.id)
    const firstS = Date.parse(first) / 1000
    await sql`
      insert into key_usage_hours (starts_at, key_id, requests, limited)
      select to_timestamp(${firstS}::float8 + hour * 3600), ${id}, 1, 0 from generate_series(0, 71) as hour`
    await sql.begin(async (tx) => {
      await tx`set local timezone = 'Europe/Berlin'`
      for (let n = 0; n < 4; n++) await tx`select roll_up_usage(to_timestamp(${firstS + 73 * 3600}))`
    })
    const days = await sql`
      select extract(epoch from starts_at)::float8 as start, requests::int from key_usage_days order by 1`
    t.strictSame(
      [...days],
      [0, 1, 2].map((day) => ({ start: firstS + day * 86_400, requests: 24 })),
    )
  })

t.test('that there is nothing to roll up is found without reading the hours and days', async (t) => {
  await sql`truncate key_usage, key_usage_hours, key_usage_days`
  for (const [table, step] of [
    ['key_usage_hours', 'hour'],
    ['key_usage_days', 'day'],
  ] as const)
    await sql`
      insert into ${sql(table)} (starts_at, key_id, requests, limited)
      select date_trunc(${step}, now()) - interval '2 days', 'apk_' || n, 1, 0 from generate_series(1, 30000) n`
  await sql.begin(async (tx) => {
    // Postgres may plan a statement for any values when it comes for the sixth time.
    for (let n = 0; n < 6; n++) await tx`select roll_up_usage(now())`
    const [row] = await tx`explain (analyze, buffers, format json) select roll_up_usage(now())`
    const { 'Shared Hit Blocks': hit, 'Shared Read Blocks': read } = row!['QUERY PLAN'][0].Plan
    t.ok(hit + read < 100, `${hit + read} pages of 8 kB`)
  })
})

t.test('an hour that is not over is not rolled up, however far ahead the counting clock is', async (t) => {
  await sql`truncate key_usage, key_usage_hours, key_usage_days`
  const key = await makeKey(user.id)
  const nowS = Date.now() / 1000
  await usage.store(Math.floor(nowS / 60), [{ keyId: key.id, count: 1 }])
  t.equal(await usage.rollUp(nowS + 100 * 3600), false)
})

t.test('what a clock that was ahead has rolled up is rolled up again, and hides no other hour', async (t) => {
  await sql`truncate key_usage, key_usage_hours, key_usage_days`
  const [key, other] = [await makeKey(user.id), await makeKey(user.id)]
  const hour = (n: number) => yesterday + n * 60
  const used = (minute: number, count: number) => usage.store(minute, [{ keyId: key.id, count }])
  const rollUpAt = async (minute: number) => {
    while (await usage.rollUp(at(minute))) {}
  }
  const hours = async () =>
    (
      await sql`select extract(epoch from starts_at)::float8 / 60 as minute, requests::int from key_usage_hours order by 1`
    ).map(({ minute, requests }) => [minute, requests])
  await used(hour(5), 10)
  await rollUpAt(hour(6) + 4)
  t.strictSame(await hours(), [[hour(5), 10]])
  await used(hour(1) + 30, 7)
  await rollUpAt(hour(2) + 4)
  t.strictSame(await hours(), [[hour(1), 7]])
  await used(hour(5) + 30, 5)
  await rollUpAt(hour(6) + 2)
  t.strictSame(await hours(), [[hour(1), 7]], 'its requests may not be stored yet')
  await rollUpAt(hour(6) + 4)
  const whole = [
    [hour(1), 7],
    [hour(5), 15],
  ]
  t.strictSame(await hours(), whole)
  await rollUpAt(hour(6) + 2.5)
  t.strictSame(await hours(), whole, 'clocks may differ by some seconds')
  await rollUpAt(hour(6) + 1)
  t.strictSame(await hours(), [[hour(1), 7]], 'but not by minutes')
  await rollUpAt(midnight + 4)
  await used(hour(7), 3)
  await rollUpAt(hour(7))
  await rollUpAt(midnight + 4)
  t.strictSame((await read(key.id, 'day', [yesterday, midnight], { now: midnight + 4 })).data, [
    point(yesterday, 25),
  ])
  const days = async () =>
    (await sql`select requests::int from key_usage_days`).map(({ requests }) => requests)
  t.strictSame(await days(), [25], 'the day too')
  await rollUpAt(midnight + 2.5)
  t.strictSame(await days(), [25])
  await rollUpAt(midnight + 1)
  t.strictSame(await days(), [])
  await rollUpAt(midnight + 4)
  t.strictSame(await days(), [25])
  whole.push([hour(7), 3])
  await sql`truncate key_usage`
  await usage.store(hour(5), [{ keyId: other.id, count: 1 }])
  await rollUpAt(hour(1))
  t.strictSame(await hours(), whole, 'what cannot be made again stays')
  await sql`truncate key_usage, key_usage_hours, key_usage_days`
  await sql`insert into key_usage_hours values (to_timestamp(${at(hour(5))}), 1, 0, ${other.id})`
  await sql`insert into key_usage_days values (to_timestamp(${at(yesterday)}), 25, 0, ${key.id})`
  await rollUpAt(hour(1))
  t.strictSame(await days(), [25], 'so does a day')
  await sql`update key_usage_days set starts_at = to_timestamp(${at(midnight)})`
  await rollUpAt(midnight + 4)
  t.strictSame((await days()).sort(), [1, 25], 'and hides no other one')
})

t.test('storing gives up early enough for several tries while the counters live', async (t) => {
  t.ok(poolBounds.usage.timeoutMs <= 60_000 / 5)
})

t.test('of instances that roll up at the same time, each has an hour of its own', async (t) => {
  await sql`truncate key_usage, key_usage_hours, key_usage_days`
  const key = await makeKey(user.id)
  const day = yesterday
  for (const [hour, count] of [1, 2].entries()) await usage.store(day + hour * 60, [{ keyId: key.id, count }])
  const second = await whileUncommitted(
    (tx) => tx`select roll_up_usage(to_timestamp(${at(midnight)}))`,
    () => usage.rollUp(at(midnight)),
  )
  t.equal(second, true)
  const hours = await sql`select requests::int from key_usage_hours order by starts_at`
  t.strictSame(
    hours.map(({ requests }) => requests),
    [1, 2],
  )
})

t.test(
  'a reader waits in the lane of its user, and neither for what is stored nor for a roll-up',
  async (t) => {
    const asked: string[] = []
    const noting = (name: string): Pool => ({
      ...pool,
      run(work, lane) {
        asked.push(lane === undefined ? name : `${name} of ${lane}`)
        return pool.run(work)
      },
    })
    const [management, stored, rollups] = ['management', 'usage', 'rollups'].map(noting) as [Pool, Pool, Pool]
    const { read, claim, rollUp } = createUsageStore({ management, usage: stored, rollups })
    const range = { step: 'hour', sinceS: at(yesterday), untilS: at(midnight) } as const
    await read(
      { id: newId('apk_'), createdAt: 0 },
      range,
      { nowS: at(midnight), live: [], isLocal: false },
      user.id,
    )
    await claim(yesterday + 1000)
    await rollUp(at(midnight))
    t.strictSame(asked, [`management of ${user.id}`, 'usage', 'rollups'])
  },
)

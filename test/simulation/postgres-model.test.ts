// The model of Postgres does what src/postgres does in a real one: the same steps find the same keys,
// publish the same versions, and confirm the same copies. Both tell an instance all that has changed, or
// that it is unknown; the real one says so more often, as it numbers transactions of others too.
import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import { createInstanceStore, dropKeyChanges } from '../../src/postgres/instances.ts'
import type { InstanceReport, KeyChanges, KeyCredential, KeyUse, KeyVersion } from '../../src/stores.ts'
import { actor, nowS, openStores } from '../postgres/open-stores.ts'
import { chanceOf } from './chance.ts'
import { limitMax } from './fleet.ts'
import type { Instance, World } from './instance.ts'
import { createLink } from './link.ts'
import { createPostgres, primary } from './postgres.ts'
import { type Change, pools } from './schedule.ts'
import { createStores, type Stores } from './stores.ts'
import { createTime } from './time.ts'

const rounds = 25
const stepsInRound = 80
const outageTtlMs = 60_000
const minuteMs = 60_000
/** As in src/postgres/instances.ts. */
const silentMaxMs = 5 * minuteMs
const instances = ['ins_a', 'ins_b', 'ins_c']

const { keys, published, users, makeUser, makeKey, pool, sql } = await openStores(t)
const { fences, report, remove } = createInstanceStore({ instances: pool, management: pool }, { outageTtlMs })
const chance = chanceOf(30)

type Pair<T> = { real: T; model: T }
type Both = Pair<unknown>
const nothing: Both = { real: null, model: null }

/** Three keys of one user in a real database and in the model of one, and what was learned of them. */
async function begin() {
  const time = createTime()
  const server = createPostgres()
  const user = await makeUser()
  const made = [await makeKey(user.id), await makeKey(user.id), await makeKey(user.id)]
  await sql`update api_keys set rate_limit_rpm = ${limitMax} where user_id = ${user.id}`
  await sql`delete from instances`
  // The numbers of fences go on.
  server.fence = await fences.raise()
  for (const { id, hash } of made)
    server.keys.set(id, {
      ...{ hash, id, userId: user.id, rateLimitRpm: limitMax, version: 1, nowS: 0 },
      ...{ expiresAt: null, revokedAt: null, ownerDeleted: false },
    })
  const world = { time, chance, postgres: server, outageTtlMs, silentMaxMs }
  const links = Object.fromEntries(pools.map((name) => [name, createLink()]))
  const process = { name: 'i', number: 0, rate: 1, killed: false, pausedUntilMs: 0 }
  const stores = createStores(
    world as World,
    { links, process, reads: primary, lookups: 0 } as never as Instance,
  )
  /** Runs a statement of the model. */
  const inModel = async <T>(work: (of: Stores) => Promise<T>): Promise<T> => {
    const answer = work(stores)
    await time.run(time.nowMs + 20)
    return answer
  }
  return {
    ...{ server, inModel, user, ids: made.map(({ id }) => id), hashes: made.map(({ hash }) => hash) },
    copies: [] as Pair<KeyCredential>[],
    /** The ids that have changed, in the order of their commits. */
    changed: [] as string[],
    /** The replies to each instance, and how much had changed then; it may not have received the last ones. */
    known: new Map(instances.map((id) => [id, [] as (Pair<string> & { changes: number })[]])),
    told: { real: 0, model: 0 },
    uses: 0,
    /** A transaction under way, and the key that it has changed. */
    open: null as null | { id: string; commit(): Promise<void> },
  }
}

type Round = Awaited<ReturnType<typeof begin>>

const summary = ({ id, version, rateLimitRpm, expiresAt, revokedAt, ownerDeleted }: KeyCredential) =>
  [id, version, rateLimitRpm, expiresAt !== null, revokedAt !== null, ownerDeleted].join(' ')
const distinct = (ids: string[]) => [...new Set(ids)].sort()
const versionsOf = (versions: KeyVersion[]) =>
  versions.map(({ keyId, version }) => `${keyId} ${version}`).sort()

const steps: Record<string, (round: Round) => Promise<Both>> = {
  async find({ inModel, hashes, copies }) {
    const asked = [...hashes.filter(() => chance.is(0.5)), '00'.repeat(32)]
    const real = await keys.findByHash(asked)
    const model = await inModel((of) => of.keys.findByHash(asked))
    for (const one of real.found) {
      const other = model.found.find(({ id }) => id === one.id)
      if (other) copies.push({ real: one, model: other })
    }
    const both = { real: real.found.map(summary).sort(), model: model.found.map(summary).sort() }
    return { real: [real.role, both.real], model: [model.role, both.model] }
  },

  async change({ inModel, server, user, ids, open }) {
    const what = chance.oneOf<Change>(
      chance.is(0.1) ? ['revoke', 'delete owner'] : ['limit', 'limit', 'expire', 'keep'],
    )
    const id = chance.oneOf(ids)
    // It would wait for the transaction under way.
    if (open && (id === open.id || what === 'delete owner')) return nothing
    const rateLimitRpm = server.keys.get(id)!.rateLimitRpm === 5 ? limitMax : 5
    const before = published.length
    const change = {
      limit: () => keys.change(id, null, { rateLimitRpm }, actor()),
      expire: () => keys.change(id, null, { expiresAt: nowS() + 1000 }, actor()),
      keep: () => keys.change(id, null, { expiresAt: null }, actor()),
      revoke: () => keys.revoke(id, null, actor()),
      'delete owner': () => users.remove(user.id, actor()),
    }
    await change[what]()
    const inOrder: KeyVersion[] = []
    const publish = async (versions: KeyVersion[]) => void inOrder.push(...versions)
    await inModel((of) => of.changeKey(publish, id, what))
    return { real: [what, versionsOf(published.slice(before))], model: [what, versionsOf(inOrder)] }
  },

  async touch(round) {
    const { inModel, copies, open } = round
    const some = new Map<string, Pair<KeyUse>>()
    for (const { real, model } of copies.slice(-9)) {
      if (real.id === open?.id || chance.is(0.5)) continue
      const refreshing = chance.is(0.8)
      const atS = 1_700_000_000 + round.uses + chance.whole(3)
      some.set(real.id, {
        real: { key: { ...real, refreshing }, atS },
        model: { key: { ...model, refreshing }, atS },
      })
    }
    round.uses++
    const real = await keys.touch([...some.values()].map((use) => use.real))
    const model = await inModel((of) => of.keys.touch([...some.values()].map((use) => use.model)))
    return { real: real.confirmed.sort(), model: model.confirmed.sort() }
  },

  async report({ inModel, known, changed, told }) {
    const id = chance.oneOf(instances)
    const replies = known.get(id)!
    const since = replies.at(-1 - chance.whole(3)) ?? { real: null, model: null, changes: 0 }
    const fence = chance.whole(5)
    const given = { id, version: '1', uptimeS: 1, counting: 'shared', postgres: 'ok', traffic: {} }
    const real = await report(given as never, { fence, since: since.real })
    await pool.run(dropKeyChanges)
    const model = await inModel((of) =>
      of.instances.report({ id } as InstanceReport, { fence, since: since.model }),
    )
    replies.push({ real: real.changes.known, model: model.changes.known, changes: changed.length })
    if (real.changes.changed) told.real++
    if (model.changes.changed) told.model++
    const all = distinct(changed.slice(since.changes))
    /** Unknown is right too. */
    const of = ({ changes }: { changes: KeyChanges }) => distinct(changes.changed ?? all)
    return { real: [real.fence, of(real), all], model: [model.fence, of(model), all] }
  },

  async raise({ inModel }) {
    return { real: await fences.raise(), model: await inModel((of) => of.instances.fences.raise()) }
  },

  async passed({ inModel }) {
    const fence = chance.whole(5)
    return {
      real: await fences.passed(fence),
      model: await inModel((of) => of.instances.fences.passed(fence)),
    }
  },

  async remove({ inModel }) {
    if (chance.is(0.7)) return nothing
    const id = chance.oneOf(instances)
    await remove(id)
    await inModel((of) => of.instances.remove(id))
    return nothing
  },

  /** Time goes by, in which no instance reports itself, or a part of them. */
  async silence({ server }) {
    if (chance.is(0.7)) return nothing
    const silent = instances.filter(() => chance.is(0.7))
    const forMs = chance.oneOf([minuteMs, minuteMs, 6 * minuteMs, 11 * minuteMs])
    await sql`
      update instances set seen_at = seen_at - make_interval(secs => ${forMs / 1000}::float8)
      where id = any (${silent})`
    for (const id of silent) {
      const row = server.instances.get(id)
      if (row) row.seenMs -= forMs
    }
    return nothing
  },

  /** Begins a transaction, or ends the one under way: a report lists its change only after the commit. */
  async open(round) {
    const { server, ids, open } = round
    if (open) {
      await open.commit()
      round.open = null
      return nothing
    }
    const key = server.keys.get(chance.oneOf(ids))!
    if (key.revokedAt !== null) return nothing
    const rateLimitRpm = key.rateLimitRpm === 5 ? limitMax : 5
    const commits = chance.is(0.8)
    const tx = await sql.reserve()
    await tx`begin`
    await tx`update api_keys set rate_limit_rpm = ${rateLimitRpm}, version = version + 1 where id = ${key.id}`
    round.open = {
      id: key.id,
      async commit() {
        await tx.unsafe(commits ? 'commit' : 'rollback')
        tx.release()
        if (commits) await round.inModel((of) => of.changeKey(async () => {}, key.id, 'limit'))
      },
    }
    return nothing
  },
}

t.test(`${rounds * stepsInRound} random steps do the same in the model as in a real Postgres`, async (t) => {
  const told = { real: 0, model: 0 }
  for (let n = 0; n < rounds; n++) {
    const round = await begin()
    for (let i = 0; i < stepsInRound; i++) {
      const what = chance.is(0.3) ? 'report' : chance.oneOf(Object.keys(steps))
      const { real, model } = await steps[what]!(round)
      const { changed, server } = round
      changed.push(...(server.changes.slice(changed.length) as string[]))
      if (!isDeepStrictEqual(model, real))
        return void t.strictSame(model, real, `round ${n}, step ${i}: ${what}`)
    }
    await round.open?.commit()
    told.real += round.told.real
    told.model += round.told.model
  }
  t.ok(told.model > 4 * rounds)
  t.ok(told.real > told.model / 2, `told ${told.real} times, ${told.model} times by the model`)
})

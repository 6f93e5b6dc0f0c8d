/** An instance on a Postgres that is to fail, and the kinds of requests that this concerns differently. */
import postgres from 'postgres'
import type { Test } from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { type Instance, makeKey, makeUser, realTimeLimits, startInstance } from '../instance.ts'
import { type Load, startLoad } from '../load.ts'
import { type Services, useServices } from '../services/index.ts'
import { soaking } from '../soak.ts'

/** In the soak as it is shipped. Briefly: believed for less than an outage lasts, so that it outlives its time here too. */
const env: Record<string, string> = soaking ? {} : { KEY_CACHE_SECONDS: '1' }

export const kinds = ['cached', 'listing', 'writing', 'unknown', 'fresh', 'page'] as const
export type Kind = (typeof kinds)[number]

/** What each is answered while nothing is wrong. */
export const normal: Record<Kind, number> = {
  cached: 200, // GET /v1/verify by keys in use
  listing: 200, // GET /v1/keys by a key in use: management that reads
  writing: 200, // DELETE of a revoked key by a key in use: management that takes locks, which only a writable server gives
  unknown: 401, // keys never minted: looked up, and the refusal recorded
  fresh: 200, // keys never seen before: looked up
  page: 200, // a page of the documentation: needs no server, so its slowness is this machine's
}

export const perSecond: Record<Kind, number> = {
  cached: 30,
  listing: 10,
  writing: 5,
  unknown: 15,
  fresh: 10,
  page: 20,
}

export interface World {
  readonly instance: Instance
  readonly userId: string
  /** With the Redis it counts in. */
  readonly services: Services
  /** A load of each kind, with new keys for `seconds`. */
  startLoads(t: Test, seconds: number): Promise<Record<Kind, Load>>
}

export async function startWorld(t: Test, databaseUrl: string): Promise<World> {
  const services = await useServices(t)
  const instance = await startInstance(t, { ...services, databaseUrl }, env, realTimeLimits)
  const { id: userId } = await makeUser(instance)
  const used = (await makeKeys(instance, userId, 4)).map(({ token }) => token)
  const revoked = await makeKey(instance, { userId })
  await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token: used[0]! })
  const unknown = Array.from({ length: 50 }, () => tokenFormat('lk').mint())

  return {
    instance,
    userId,
    services,
    async startLoads(t, seconds) {
      const fresh = (await makeKeys(instance, userId, Math.ceil(seconds * perSecond.fresh))).map(
        ({ token }) => token,
      )
      const load = (kind: Kind, tokens: readonly string[], more: { path?: string; method?: string } = {}) =>
        startLoad(t, { urls: [instance.url], tokens, perSecond: perSecond[kind], ...more })
      return {
        cached: load('cached', used),
        listing: load('listing', used, { path: '/v1/keys?limit=5' }),
        writing: load('writing', used, { path: `/v1/keys/${revoked.id}`, method: 'DELETE' }),
        unknown: load('unknown', unknown),
        fresh: load('fresh', fresh),
        page: load('page', used, { path: '/docs/errors/not_found' }),
      }
    },
  }
}

const atOnce = 50

export async function makeKeys(instance: Instance, userId: string, count: number) {
  const made: Awaited<ReturnType<typeof makeKey>>[] = []
  while (made.length < count) {
    const batch = Math.min(atOnce, count - made.length)
    made.push(...(await Promise.all(Array.from({ length: batch }, () => makeKey(instance, { userId })))))
  }
  return made
}

/** A connection of the test's own to a server. */
export function connectTo(t: Test, url: string): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}

/**
 * What an attacker hides behind or inside another request: two good requests, with a key that
 * nothing else uses, which revoke one key and create another. What they have done shows whether
 * they have run.
 */
import type { Test } from 'tap'
import { type Instance, makeKey, makeUser } from '../instance.ts'
import type { Services } from '../services/index.ts'
import { openDatabase } from '../services/index.ts'
import { goodCreation, request } from './requests.ts'

export interface Trap {
  readonly bytes: string
  readonly usedKey: string
  readonly revocableKey: string
}

export interface Traps {
  set(): Promise<Trap>
  /** What the hidden requests of each of these have done, or of all: nothing, if they never ran. */
  sprung(traps?: readonly Trap[]): Promise<string[][]>
  /**
   * Resolves once requests that were hidden so far would have run: others have, which go the same
   * way and began later.
   */
  settled(): Promise<void>
  /** Requests with these keys that are counted in Redis, in all minutes that it still has. */
  counted(keyIds: readonly string[]): Promise<number[]>
}

/**
 * Both hidden requests have this header. A load balancer that sees it refuses them, so one that
 * runs got past it unseen.
 */
export const marker = 'x-smuggled'
/** What two hidden requests do that run. */
export const allSprung = ['2 requests counted', 'a key created', 'a key revoked']

export async function openTraps(t: Test, services: Services, instance: Instance): Promise<Traps> {
  const sql = openDatabase(t, services.databaseUrl)
  const redis = services.connectRedis()
  const { id: userId } = await makeUser(instance)
  const bystander = await makeKey(instance, { userId })
  const all: Trap[] = []

  async function counted(keyIds: readonly string[]): Promise<number[]> {
    const names = (await redis.keys('rl:*')).filter((name) => !name.endsWith(':v'))
    const counts = names.length === 0 ? [] : await redis.mget(names)
    const of = (id: string) => counts.filter((_, i) => names[i]!.startsWith(`rl:{${id}}:`))
    return keyIds.map((id) => of(id).reduce((sum, count) => sum + Number(count), 0))
  }

  return {
    counted,
    async set() {
      const [used, revocable] = [await makeKey(instance, { userId }), await makeKey(instance, { userId })]
      const marked = (bytes: string) => bytes.replace('\r\n', `\r\n${marker}: yes\r\n`)
      const trap: Trap = {
        usedKey: used.id,
        revocableKey: revocable.id,
        bytes:
          marked(request('DELETE', `/v1/keys/${revocable.id}`, used.token)) +
          marked(goodCreation(used.token, `created with ${used.id}`)),
      }
      all.push(trap)
      return trap
    },
    async sprung(traps = all) {
      const times = await counted(traps.map(({ usedKey }) => usedKey))
      const names = traps.map(({ usedKey }) => `created with ${usedKey}`)
      const ids = traps.map(({ revocableKey }) => revocableKey)
      const rows = await sql`
        select id, name from api_keys where name = any(${names}) or id = any(${ids}) and revoked_at is not null`
      return traps.map((_, i) => [
        ...(times[i]! > 0 ? [`${times[i]} requests counted`] : []),
        ...(rows.some(({ name }) => name === names[i]) ? ['a key created'] : []),
        ...(rows.some(({ id }) => id === ids[i]) ? ['a key revoked'] : []),
      ])
    },
    async settled() {
      for (let i = 0; i < 2; i++) await instance.ask('DELETE', '/v1/keys/apk_0', { token: bystander.token })
    },
  }
}

/**
 * What an attacker hides behind or inside another request: two requests with a key that nothing else uses. They are good
 * ones, and would revoke a key and make another. Whether they have run is seen by what they would have done.
 */
import type { Test } from 'tap'
import { openDatabase } from '../api/database.ts'
import { type Instance, makeKey, makeUser } from '../instance.ts'
import type { Services } from '../services/index.ts'
import { host, json, message } from './requests.ts'

export interface Trap {
  readonly bytes: string
  /** What the two have done; nothing when they never ran. */
  sprung(): Promise<string[]>
}

export interface Traps {
  set(): Promise<Trap>
  /** Of all that were set: to be asked at the end, when whatever was under way has ended. */
  sprung(): Promise<string[]>
  /** Requests that the counters in Redis know of a key, in all minutes they still have. */
  counted(keyId: string): Promise<number>
}

/** By this a load balancer tells the two where it sees them, and refuses them: so what runs has got past it unseen. */
export const marker = 'x-smuggled'

export async function openTraps(t: Test, services: Services, instance: Instance): Promise<Traps> {
  const sql = openDatabase(t, services.databaseUrl)
  const redis = services.connectRedis()
  const owner = await makeUser(instance)
  const all: Trap[] = []

  async function counted(keyId: string): Promise<number> {
    const names = (await redis.keys(`rl:{${keyId}}:*`)).filter((name) => !name.endsWith(':v'))
    const counts = names.length === 0 ? [] : await redis.mget(names)
    return counts.reduce((sum, count) => sum + Number(count), 0)
  }

  async function set(): Promise<Trap> {
    const used = await makeKey(instance, { userId: owner.id })
    const revocable = await makeKey(instance, { userId: owner.id })
    const name = `made with ${used.id}`
    const body = JSON.stringify({ name })
    const head = (first: string, ...lines: string[]) => [
      `${first} HTTP/1.1`,
      host,
      `Authorization: Bearer ${used.token}`,
      `${marker}: yes`,
      ...lines,
    ]
    const trap: Trap = {
      bytes:
        message(head(`DELETE /v1/keys/${revocable.id}`)) +
        message(head('POST /v1/keys', json, `Content-Length: ${body.length}`), body),
      async sprung() {
        const times = await counted(used.id)
        const [rows] = await sql`
          select exists (select from api_keys where name = ${name}) as made,
                 exists (select from api_keys where id = ${revocable.id} and revoked_at is not null) as revoked`
        return [
          ...(times > 0 ? [`${times} requests counted`] : []),
          ...(rows!.made ? ['a key made'] : []),
          ...(rows!.revoked ? ['a key revoked'] : []),
        ]
      },
    }
    all.push(trap)
    return trap
  }

  return { set, counted, sprung: async () => (await Promise.all(all.map((trap) => trap.sprung()))).flat() }
}

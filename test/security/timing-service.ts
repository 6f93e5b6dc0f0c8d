// A service as a process of its own, on a Postgres as large as one in use, and one key of each kind that is compared.
import type { Test } from 'tap'
import { newId } from '../../src/rules/id.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import { openDatabase } from '../api/database.ts'
import { deleteUser, makeCaller, startInstance } from '../instance.ts'
import { externalEnv, serveLatchkey } from '../process/latchkey.ts'
import { startPrivatePostgres, useServices } from '../services/index.ts'

/** Enough for an index of several levels, and for the plans that a database in use has. */
const others = { users: 2000, keys: 20_000 }
const longAgoS = 1_000_000_000

export interface Compared {
  port: number
  /** Usable, and never over its limit. */
  caller: { id: string; token: string }
  strangersId: string
  /** Refused for one reason each. */
  revoked: string
  expired: string
  ownerDeleted: string
}

/** A token and an id that were never given out: another one at each call. */
export const unknownToken = () => tokenFormat('lk').mint()
export const absentId = () => newId('apk_')

export async function startCompared(t: Test): Promise<Compared> {
  const services = await useServices(t)
  const { url: databaseUrl } = await startPrivatePostgres(t)
  const given = { ...services, databaseUrl }
  const instance = await startInstance(t, given)
  const sql = openDatabase(t, databaseUrl)
  const caller = await makeCaller(instance, { rateLimitRpm: 1_000_000_000 })
  const stranger = await makeCaller(instance)
  const revoked = await makeCaller(instance)
  await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token: revoked.token })
  const expired = await makeCaller(instance, { expiresAt: longAgoS })
  const ownerless = await makeCaller(instance)
  await deleteUser(instance, ownerless.userId)
  await instance.close()

  await sql`
    insert into users (id, name)
    select 'usr_' || md5(n::text), 'somebody' from generate_series(1, ${others.users}::int) n`
  await sql`
    insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix)
    select 'apk_' || md5(n::text), 'usr_' || md5((n % ${others.users}::int + 1)::text), 'a key', sha256(n::text::bytea), 'x', 'lk_0000000'
    from generate_series(1, ${others.keys}::int) n`
  // Or Postgres would do it by itself, and change its plans, at some moment of the measurement.
  await sql`vacuum analyze`

  const { port } = await serveLatchkey(t, externalEnv(given))
  return {
    port,
    caller,
    strangersId: stranger.id,
    revoked: revoked.token,
    expired: expired.token,
    ownerDeleted: ownerless.token,
  }
}

/**
 * What the tests of the admin API share: instances with an ops listener each, operators, and what
 * is in the audit log.
 */
import type { Test } from 'tap'
import { nowS } from '../api/values.ts'
import { type Ask, deleteUser, makeCaller, startInstance, startOps } from '../instance.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'

export const ada = 'a-token-of-adas-own'
export const bob = 'bobs-token-is-longer-than-hers'
const env = { OPS_TOKEN: `ada:${ada},bob:${bob}` }

export async function startAdmin(t: Test, more: Record<string, string> = {}) {
  const services = await useServices(t)
  const instance = await startInstance(t, services, { ...env, ...more })
  const ops = await startOps(t, instance)
  const sql = openDatabase(t, services.databaseUrl)
  const admin = (method: string, path: string, json?: unknown, more: Ask = {}) =>
    ops.ask(method, `/admin/${path}`, { token: ada, ...(json !== undefined && { json }), ...more })
  /** The entries of one answer's request. */
  const entriesOf = ({ headers }: { headers: Headers }) => sql`
    select event, actor, key_id, user_id, reason, method, path, ip, user_agent, details
    from audit_log where request_id = ${headers.get('x-request-id')} order by occurred_at, id`
  async function keysInEachState() {
    const active = await makeCaller(instance)
    const revoked = await makeCaller(instance)
    const expired = await makeCaller(instance, { expiresAt: nowS() - 5 })
    const ownerless = await makeCaller(instance)
    await admin('DELETE', `keys/${revoked.id}`)
    await deleteUser(instance, ownerless.userId)
    return { active, revoked, expired, ownerless }
  }
  const startOther = () => startInstance(t, services, { ...env, ...more })
  const redis = services.connectRedis()
  /** A moment after the first request, the key is read again, and used from the cache from then on. */
  const untilConfirmed = (keyId: string) =>
    until('its version is confirmed', async () => /^\d+$/.test((await redis.get(`rl:{${keyId}}:v`)) ?? ''))
  return { services, instance, ops, sql, admin, entriesOf, keysInEachState, startOther, untilConfirmed }
}

export const verify = (
  instance: { ask: (...args: [string, string, Ask]) => Promise<{ status: number }> },
  token: string,
) => instance.ask('GET', '/v1/verify', { token }).then(({ status }) => status)

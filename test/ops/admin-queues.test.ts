// Each operator waits for a connection in a queue of their own: one whose questions get stuck holds
// up neither others nor callers.
import t from 'tap'
import { makeCaller } from '../instance.ts'
import { until } from '../process/until.ts'
import { ada, bob, startAdmin } from './admin.ts'

const { instance, ops, sql, admin } = await startAdmin(t)
const { id, userId, token } = await makeCaller(instance)

/** What gets stuck while this table is locked, and something that needs another table. */
const stuck: [table: string, method: string, path: string, json: unknown, free: string][] = [
  ['users', 'GET', 'users', undefined, 'audit'],
  ['users', 'GET', `users/${userId}`, undefined, 'audit'],
  ['users', 'POST', 'users', { name: 'x' }, 'audit'],
  ['users', 'PATCH', `users/${userId}`, { name: 'x' }, 'audit'],
  ['users', 'POST', `users/${userId}/revoke-keys`, undefined, 'audit'],
  ['users', 'POST', 'keys', { user_id: userId, name: 'x' }, 'audit'],
  ['users', 'POST', 'lookup', { query: 'an external id' }, 'audit'],
  ['api_keys', 'GET', 'keys', undefined, 'users'],
  ['api_keys', 'GET', `keys?user_id=${userId}`, undefined, 'users'],
  ['api_keys', 'GET', `keys/${id}`, undefined, 'users'],
  ['api_keys', 'PATCH', `keys/${id}`, { name: 'x' }, 'users'],
  ['api_keys', 'DELETE', `keys/${id}`, undefined, 'users'],
  ['api_keys', 'POST', 'lookup', { query: token }, 'users'],
  ['audit_log', 'GET', 'audit', undefined, 'users'],
  ['audit_log', 'POST', 'lookup', { query: id }, 'users'],
  ['audit_log', 'POST', 'lookup', { query: 'req_1' }, 'users'],
  ['instances', 'GET', 'instances', undefined, 'users'],
  ['key_usage', 'GET', `keys/${id}/usage`, undefined, 'users'],
  ['users', 'DELETE', `users/${userId}`, undefined, 'audit'],
]

for (const [table, method, path, json, free] of stuck) {
  t.test(
    `${method} ${path.replaceAll(/[a-z]+_[0-9a-z]{26}/g, '…')} stuck in ${table} holds up its operator only`,
    async (t) => {
      let answered = 0
      const flood: Promise<unknown>[] = []
      await sql.begin(async (tx) => {
        await tx.unsafe(`lock table ${table} in access exclusive mode`)
        for (let n = 0; n < 6; n++) flood.push(admin(method, path, json).finally(() => answered++))
        // By the last of these, the flood has arrived.
        for (let n = 0; n < 5; n++) t.equal((await admin('GET', free, undefined, { token: bob })).status, 200)
        t.equal(answered, 0, 'and they are stuck')
      })
      await Promise.all(flood)
    },
  )
}

t.test('the busiest keys wait in the queue of who asks for them, or of the dashboard', async (t) => {
  const { keys } = instance.service.stores
  const ranked = t.capture(keys, 'rank', keys.rank)
  const lane = () => ranked()[0]?.args[1].lane
  await admin('GET', 'counters', undefined, { token: bob })
  t.equal(lane(), 'operator:bob')
  const leaving = new AbortController()
  t.teardown(() => leaving.abort())
  const headers = { authorization: `Bearer ${ada}` }
  await fetch(`${ops.url}/admin/events`, { headers, signal: leaving.signal })
  t.equal(await until('they are ranked again', lane), 'operator:dashboard')
})

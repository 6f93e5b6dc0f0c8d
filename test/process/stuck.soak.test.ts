// A stop that gets stuck has 25 seconds, and its requests have 19 of them.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { lockWaitOf } from './held-at-start.ts'
import { externalEnv, serveLatchkey } from './latchkey.ts'

t.test('a stop that gets stuck is ended after 25 seconds, and not with 0', async (t) => {
  const services = await useServices(t)
  const stuck = `import { Server } from 'node:http'; Server.prototype.close = function () { return this }`
  const preloaded = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(stuck)}` }
  const service = await serveLatchkey(t, { ...externalEnv(services), ...preloaded })
  const startMs = performance.now()
  service.kill('SIGTERM')
  const { code } = await service.ended
  t.equal(code, 1)
  const tookMs = performance.now() - startMs
  t.ok(tookMs > 24_000 && tookMs < 30_000, `after ${Math.round(tookMs)} ms`)
})

t.test('an operator who waits for longer is cut off, and the rest of the stop is as usual', async (t) => {
  const services = await useServices(t)
  const sql = openDatabase(t, services.databaseUrl, 2)
  const seeding = await startInstance(t, services)
  const caller = await makeCaller(seeding)
  await seeding.close()
  const service = await serveLatchkey(t, externalEnv(services))
  await sql.begin(async (tx) => {
    await tx`select from users where id = ${caller.userId} for update`
    t.equal((await ask(`GET ${service.url}/v1/verify`, { token: caller.token })).status, 200)
    const isCutOff = t.rejects(ask(`DELETE ${service.opsUrl}/admin/users/${caller.userId}`))
    await lockWaitOf(sql, '%delete_user%')
    service.kill('SIGTERM')
    await isCutOff
    const { code } = await service.ended
    t.equal(code, 0)
    t.equal((await sql`select from instances`).length, 0, 'its row is gone')
    const [row] = await sql`select sum(reported)::int as reported from usage_minutes`
    t.equal(row!.reported, 1)
  })
})

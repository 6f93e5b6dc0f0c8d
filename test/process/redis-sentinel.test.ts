// Redis with Sentinel, behind the HAProxy of docs/operations.md: a failover loses no limit and no revocation.
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { inOneMinute } from '../api/one-minute.ts'
import { type Instance, makeCaller, makeKey, startInstance } from '../instance.ts'
import { observe } from '../redis/counters.ts'
import { onPath } from '../services/binaries.ts'
import { startPrivateRedis, useServices } from '../services/index.ts'
import { startProxy } from '../services/load-balancer.ts'
import { accepts, freePort } from '../services/ports.ts'
import { launch, startPrivateServer } from '../services/private-server.ts'
import { until } from './until.ts'

const documented = await readFile(new URL('../../docs/operations.md', import.meta.url), 'utf8')
const config = /```haproxy\n(.*?)```/s.exec(documented)![1]!

t.test('a failover loses no limit and no revocation', async (t) => {
  const services = await useServices(t)
  const sentinelProgram = await onPath('redis-sentinel')
  if (sentinelProgram === null) return void t.pass({ skip: 'there is no redis-sentinel on this machine' })
  const args = ['--min-replicas-to-write', '1', '--min-replicas-max-lag', '10']
  const master = await startPrivateRedis(t, { args })
  if (!master) return
  const follow = [...args, '--replicaof', '127.0.0.1', `${master.port}`]
  const replicas = await Promise.all([1, 2].map(() => startPrivateRedis(t, { args: follow })))
  const servers = [master, ...replicas.map((one) => one!)]
  const observers = servers.map(({ url }) => observe(t, url))
  const says = async (server: number, fact: RegExp) =>
    fact.test(await observers[server]!.info('replication').catch(() => ''))

  const sentinelPort = await freePort()
  await startPrivateServer(t, 'sentinel', async (folder) => {
    const file = join(folder, 'sentinel.conf')
    const lines = [
      `port ${sentinelPort}`,
      'bind 127.0.0.1',
      `sentinel monitor latchkey 127.0.0.1 ${master.port} 1`,
      // Sentinel sends its first ping a second after it has connected. A limit of one second would end
      // before the answer, and a second failover would follow the first.
      'sentinel down-after-milliseconds latchkey 2000',
      'sentinel failover-timeout latchkey 3000',
    ]
    await writeFile(file, `${lines.join('\n')}\n`)
    const command = sentinelProgram
    return launch({ command, args: [file], folder, mark: folder, ready: () => accepts(sentinelPort) })
  })

  const port = await freePort()
  const text = servers.reduce(
    (text, { port }, i) => text.replace(`10.0.0.${i + 1}:6379`, `127.0.0.1:${port}`),
    config.replace('127.0.0.1:6400', `127.0.0.1:${port}`),
  )
  const proxy = await startProxy(t, 'haproxy', {
    port,
    files: { config: text },
    args: (folder) => ['-db', '-f', join(folder, 'config')],
  })
  if (!proxy) return
  const redisUrl = `redis://127.0.0.1:${port}`
  const [one, two] = await Promise.all([1, 2].map(() => startInstance(t, { ...services, redisUrl })))
  const bothCount = () =>
    until('both count in Redis', () =>
      [one!, two!].every(({ service }) => service.stores.counter.mode() === 'shared'),
    )
  const { userId, token } = await makeCaller(one!)
  const ask = (instance: Instance, key: string) => instance.ask('GET', '/v1/verify', { token: key })
  const verify = async (instance = one!, key = token) => (await ask(instance, key)).status

  async function check() {
    await bothCount()
    t.strictSame([await verify(one), await verify(two)], [200, 200])
    const { answers } = await inOneMinute(async () => {
      const limited = await makeKey(one!, { userId, rateLimitRpm: 20 })
      const asks = Array.from({ length: 30 }, (_, n) => ask([one!, two!][n % 2]!, limited.token))
      return { answers: await Promise.all(asks) }
    })
    t.equal(answers.filter(({ status }) => status === 200).length, 20)
    const other = await makeKey(one!, { userId })
    t.equal(await verify(two, other.token), 200)
    t.equal((await one!.ask('DELETE', `/v1/keys/${other.id}`, { token })).status, 200)
    t.equal(await verify(two, other.token), 401)
  }

  await until('the replicas follow', () => says(0, /connected_slaves:2/))
  await check()
  await master.kill()
  await until('another is the master, and has a replica', async () =>
    (await Promise.all([1, 2].map((server) => says(server, /role:master[\s\S]*connected_slaves:1/)))).some(
      Boolean,
    ),
  )
  await check()
  await master.restart()
  await until('the former master is a replica', () => says(0, /role:slave/))
  await check()
})

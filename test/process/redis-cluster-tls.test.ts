// A Redis Cluster over TLS with a password, as processes of the service use it.
import t from 'tap'
import { makeCertificates, startRedisCluster } from '../services/index.ts'
import { admittedOf, exactly, readyBody, startOffice, untilCause, untilShared } from './redis-fleet.ts'
import { until } from './until.ts'

const password = 'a-password-that-nobody-may-read'

t.test('a cluster over TLS with a password', async (t) => {
  // Its nodes announce 127.0.0.1.
  const tls = await makeCertificates(t, ['DNS:localhost'])
  const cluster = tls && (await startRedisCluster(t, { masters: 3, replicas: 1, password, tls }))
  if (!cluster) return
  const { office, start } = await startOffice(t)
  const urlOf = (host: string, nodes: number) =>
    cluster.nodes
      .slice(0, nodes)
      .map(({ port }) => `rediss://:${password}@${host}:${port}`)
      .join(',')
  const env = { NODE_EXTRA_CA_CERTS: tls.authority }

  await t.test('counts exactly, also where REDIS_URL names only two nodes of it', async (t) => {
    const services = await Promise.all([start(urlOf('localhost', 6), env), start(urlOf('localhost', 2), env)])
    for (const service of services) t.equal((await readyBody(service)).redis, 'shared')
    t.strictSame(await admittedOf(office, services), exactly(30))

    await cluster.nodes[0]!.kill()
    await until('the replica has taken over', async () => {
      const [role] = (await cluster.redis[3]!.call('ROLE')) as string[]
      return role === 'master'
    })
    for (const service of services) await untilShared(service, 20_000)
    t.strictSame(await admittedOf(office, services), exactly(30), 'after a failover, too')
    await cluster.nodes[0]!.restart()
  })

  await t.test(
    'is refused under a name that is not in its certificates, and without its authority',
    async (t) => {
      const [misnamed, untrusting] = await Promise.all([
        start(urlOf('127.0.0.1', 3), env),
        start(urlOf('localhost', 3)),
      ])
      for (const service of [misnamed, untrusting]) {
        await untilCause(service, 'certificate')
        t.notMatch(service.stdout + service.stderr, password)
      }
    },
  )

  await t.test('says what is wrong when every node gets a certificate that it does not trust', async (t) => {
    const service = await start(urlOf('localhost', 3), env)
    await untilShared(service)
    const other = await makeCertificates(t, ['DNS:localhost'])
    const files = ['tls-cert-file', other!.certificate, 'tls-key-file', other!.key]
    await Promise.all(cluster.redis.map((redis) => redis.call('CONFIG', 'SET', ...files)))
    await Promise.all(cluster.redis.map((redis) => redis.call('CLIENT', 'KILL', 'TYPE', 'normal')))
    await untilCause(service, 'certificate')
  })
})

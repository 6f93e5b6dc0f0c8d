// One Redis over TLS, as a process of the service uses it.
import t from 'tap'
import { makeCertificates, startPrivateRedis } from '../services/index.ts'
import { admittedOf, exactly, readyBody, startOffice, untilCause } from './redis-fleet.ts'

const password = 'a-password-that-nobody-may-read'

t.test(
  'a Redis over TLS counts exactly, and one with a certificate for another host is refused',
  async (t) => {
    const tls = await makeCertificates(t, ['DNS:localhost'])
    const foreign = await makeCertificates(t, ['DNS:elsewhere.example'])
    const own = tls && (await startPrivateRedis(t, { tls, args: ['--requirepass', password] }))
    const other = foreign && (await startPrivateRedis(t, { tls: foreign }))
    if (!own || !other) return
    const { office, start } = await startOffice(t)
    const urlOf = ({ port }: { port: number }) => `rediss://:${password}@localhost:${port}/3`
    const service = await start(urlOf(own), { NODE_EXTRA_CA_CERTS: tls.authority })
    t.equal((await readyBody(service)).redis, 'shared')
    t.strictSame(await admittedOf(office, [service], 3), exactly(3))
    const refused = await start(urlOf(other), { NODE_EXTRA_CA_CERTS: foreign.authority })
    await untilCause(refused, 'certificate')
  },
)

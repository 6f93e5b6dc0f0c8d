// Whose connection it was, after it has ended. (Over TCP and HTTP/2: test/package/guarded.test.ts.)
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import t from 'tap'
import { rememberAddresses } from '../../src/http/peer-address.ts'
import { makeCertificates } from '../services/certificates.ts'

t.test('a client over TLS that resets its connection has an address', async (t) => {
  const files = await makeCertificates(t, ['DNS:localhost'])
  if (!files) return
  const [cert, key] = [await readFile(files.certificate), await readFile(files.key)]
  const server = createServer({ cert, key }).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  rememberAddresses(server)
  await once(server, 'listening')
  const accepted = once(server, 'secureConnection')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  connectTls({ socket, rejectUnauthorized: false }).on('error', () => {})
  const [connection] = (await accepted) as [TLSSocket]
  connection.on('error', () => {})
  const closed = once(connection, 'close')
  socket.resetAndDestroy()
  await closed
  t.equal(connection.remoteAddress, '127.0.0.1')
})

// TLS to Postgres as libpq does it: whose certificate is accepted, for which name, and what the
// client shows.
import { once } from 'node:events'
import { chown, copyFile, readFile, stat, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { createServer as createTlsServer, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { readAddress } from '../../src/postgres/address.ts'
import { dial } from '../../src/postgres/dial.ts'
import { createPool } from '../../src/postgres/pool.ts'
import type { SslSettings } from '../../src/postgres/ssl.ts'
import { until } from '../process/until.ts'
import { type Certificate, createAuthority } from '../services/certificates.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../services/folders.ts'
import { openDatabase, startPrivatePostgres } from '../services/index.ts'

const server = await startPrivatePostgres(t)
const admin = openDatabase(t, server.url, 4)
const folder = await makeTemporaryFolder('certificates')
t.teardown(() => removeTemporaryFolder(folder))
const [setting] = await admin`select current_setting('data_directory') as data`
const dataFolder: string = setting!.data
const [authority, stranger] = [
  await createAuthority(folder, 'authority'),
  await createAuthority(folder, 'stranger'),
]
const forName = await authority.sign('db', 'DNS:localhost')
const forAddress = await authority.sign('db', 'IP:127.0.0.1')
const root = authority.root

const reload = async (isDone: () => Promise<boolean>) => {
  await admin`select pg_reload_conf()`
  await until('the settings are in force', isDone)
}

/** Null: without TLS. */
async function serveWith(certificate: Certificate | null) {
  const { uid, gid } = await stat(dataFolder)
  const files = certificate && { cert: certificate.cert, key: certificate.key, ca: root }
  for (const [name, from] of Object.entries(files ?? {})) {
    const file = join(dataFolder, `tls-${name}.pem`)
    await copyFile(from, file)
    await chown(file, uid, gid)
    await admin.unsafe(`alter system set ssl_${name}_file = 'tls-${name}.pem'`)
  }
  await admin.unsafe(`alter system set ssl = ${certificate ? 'on' : 'off'}`)
  await reload(async () => (await connection(address, { sslmode: 'prefer' })) === (certificate !== null))
}

type Params = Record<string, string>
const urlOf = (host: string, params: Params, user = 'postgres') =>
  `postgres://${user}@${host}:${server.port}/postgres?${new URLSearchParams(params)}`

/** Whether the connection is encrypted, or why there is none. */
async function connectionTo(url: string, ssl?: SslSettings): Promise<boolean | string> {
  const pool = createPool({ url, ...(ssl && { ssl }), purpose: 'tls', max: 1, timeoutMs: 5000 })
  try {
    const [row] = await pool.run((sql) => sql`select ssl from pg_stat_ssl where pid = pg_backend_pid()`)
    return row!.ssl
  } catch (error) {
    return (error as Error).message
  } finally {
    await pool.close()
  }
}
const connection = (host: string, params: Params, { user, ssl }: { user?: string; ssl?: SslSettings } = {}) =>
  connectionTo(urlOf(host, params, user), ssl)

const address = '127.0.0.1'
const name = 'localhost'
const full = { sslmode: 'verify-full' }
const trusting = { ...full, sslrootcert: root }
const otherHost = /certificate is for another host/
const untrusted = /TLS: .*(certificate|issuer)/
const noTls = /offers no TLS/

type Case = [host: string, params: Params, outcome: boolean | RegExp, env?: SslSettings]
const servers: [what: string, certificate: Certificate | null, cases: Case[]][] = [
  [
    'a certificate for the address',
    forAddress,
    [
      [address, trusting, true],
      [name, trusting, otherHost],
      ['elsewhere', { host: address, port: String(server.port), ...trusting }, true],
    ],
  ],
  [
    'a certificate for the name, signed by our authority and no other',
    forName,
    [
      [name, trusting, true],
      [address, trusting, otherHost],
      [name, { ...full, sslrootcert: stranger.root }, untrusted],
      [name, full, untrusted],
      [name, { ...full, sslrootcert: 'system' }, untrusted],
      [name, { sslrootcert: 'system' }, untrusted],
      [address, { sslmode: 'verify-ca', sslrootcert: root }, true],
      [address, { sslmode: 'verify-ca', sslrootcert: stranger.root }, untrusted],
      [address, { sslmode: 'require', sslrootcert: root }, true],
      [address, { sslmode: 'require', sslrootcert: stranger.root }, untrusted],
      [address, { sslmode: 'require' }, true],
      [address, { sslmode: 'prefer' }, true],
      [address, { sslmode: 'prefer', sslrootcert: stranger.root }, true],
      [address, { sslmode: 'allow' }, true],
      [address, { sslmode: 'disable' }, false],
      [address, {}, false],
      // The environment counts where the URL says nothing.
      [name, {}, true, trusting],
      [address, {}, otherHost, trusting],
      [address, { sslmode: 'verify-ca' }, true, trusting],
    ],
  ],
  [
    'no TLS, which is refused unless TLS is only preferred',
    null,
    [
      [address, { sslmode: 'require' }, noTls],
      [address, { sslmode: 'verify-ca', sslrootcert: root }, noTls],
      [address, { sslmode: 'prefer' }, false],
      [address, { sslmode: 'allow' }, false],
    ],
  ],
]
for (const [what, certificate, cases] of servers) {
  t.test(`a server with ${what}`, async (t) => {
    await serveWith(certificate)
    for (const [host, params, outcome, ssl] of cases) {
      const asked = JSON.stringify({ host, params, ssl }).replaceAll(folder, '')
      const found = await connection(host, params, ssl && { ssl })
      if (outcome instanceof RegExp) t.match(found, outcome, asked)
      else t.equal(found, outcome, asked)
    }
  })
}

t.test("a server that asks for a certificate accepts the client's own and no other", async (t) => {
  await serveWith(forAddress)
  const hba = join(dataFolder, 'pg_hba.conf')
  const before = await readFile(hba, 'utf8')
  for (const role of ['ada', 'grace']) await admin`create role ${admin(role)} login`
  const rules = ['ada 127.0.0.1/32 cert', 'grace 127.0.0.1/32 trust clientcert=verify-full']
  await writeFile(hba, `${rules.map((rule) => `hostssl all ${rule}\n`).join('')}${before}`)
  const ada = await authority.sign('ada')
  const as = (user: string, shown?: Certificate) =>
    connection(address, { ...trusting, ...(shown && { sslcert: shown.cert, sslkey: shown.key }) }, { user })
  await reload(async () => typeof (await as('ada')) === 'string')
  t.equal(await as('ada', ada), true, 'its own')
  t.match(await as('ada'), /client certificate/, 'none')
  t.match(await as('grace', ada), /authentication failed|certificate/, "another user's")
  t.equal(await as('grace', await authority.sign('grace')), true)
  t.type(await as('ada', await stranger.sign('ada')), 'string', "a stranger's")
})

t.test('a connection that is reset after a TLS alert ends no process', async (t) => {
  let reset: Promise<unknown> | undefined
  const resetting = createServer((client) => {
    const upstream = connect(server.port, address)
    for (const socket of [client, upstream]) socket.on('error', () => {})
    client.on('data', (bytes) => upstream.write(bytes))
    upstream.on('data', (bytes) => client.write(bytes))
    reset = new Promise((resolve) => upstream.once('close', resolve)).then(async () => {
      // The alert arrives first.
      await pause(50)
      client.resetAndDestroy()
      await pause(50)
    })
  }).listen(0, address)
  await once(resetting, 'listening')
  t.teardown(() => resetting.close())
  const { port } = resetting.address() as AddressInfo
  const url = Object.assign(new URL(urlOf(address, trusting, 'ada')), { port })
  t.match(await connectionTo(url.href), /client certificate|certificate required/)
  await reset
})

t.test('a wrong setting is named, and its value is not shown', async (t) => {
  const broken = join(folder, 'broken.pem')
  await writeFile(broken, 'not a certificate')
  const nowhere = '/nowhere/x'
  const cases: [params: Params, ssl: SslSettings, message: RegExp][] = [
    [{ sslmode: 'verify' }, {}, /^sslmode in DATABASE_URL must be one of disable, .*verify-full$/],
    [{}, { sslmode: 'on' }, /^PGSSLMODE must be one of/],
    [{ ...full, sslrootcert: nowhere }, {}, /^sslrootcert in DATABASE_URL: .*cannot be read \(ENOENT\)$/],
    [full, { sslrootcert: nowhere }, /^PGSSLROOTCERT: .*\(ENOENT\)$/],
    [full, { sslrootcert: broken }, /^PGSSLROOTCERT: the file cannot be used/],
    [{ ...full, sslcert: root, sslkey: nowhere }, {}, /^sslkey in DATABASE_URL: .*\(ENOENT\)$/],
    [{ ...full, sslcert: broken, sslkey: broken }, {}, /^sslcert in DATABASE_URL: .*used/],
    [{ ...full, sslcert: forName.cert, sslkey: forAddress.key }, {}, /^sslkey in DATABASE_URL: .*used/],
    [{ ...full, sslcert: forName.cert }, {}, /^sslcert in DATABASE_URL needs sslkey$/],
    [{ ...full, sslkey: forName.key }, {}, /^sslkey in DATABASE_URL needs sslcert$/],
    [{ sslrootcert: root }, {}, /^sslrootcert in DATABASE_URL needs an sslmode/],
    [{}, { sslcert: forName.cert, sslkey: forName.key }, /^PGSSLCERT needs an sslmode/],
    [{}, { sslkey: forName.key }, /^PGSSLKEY needs an sslmode/],
    [{ sslmode: 'verify-ca' }, {}, /verify-ca needs sslrootcert$/],
    [{ sslmode: 'require', sslrootcert: 'system' }, {}, /must be verify-full with sslrootcert=system$/],
  ]
  for (const direct of [{}, { sslmode: 'disable' }, { sslmode: 'prefer' }])
    cases.push([{ ...direct, sslnegotiation: 'direct' }, {}, /direct .* needs an sslmode of require/])
  cases.push(
    [{ sslnegotiation: 'tls' }, {}, /^sslnegotiation in DATABASE_URL must be one of postgres, direct$/],
    [{ host: 'a,b,c', port: '1,2' }, {}, /^DATABASE_URL has 3 hosts and 2 ports$/],
  )
  for (const [params, ssl, message] of cases) {
    const url = urlOf('secret-host', params)
    t.throws(() => createPool({ url, ssl, purpose: 'tls', max: 1, timeoutMs: 100 }), { message })
  }
})

t.test('a parameter that is there twice is refused, not one of its values taken', async (t) => {
  for (const name of ['sslmode', 'host', 'port', 'sslrootcert'])
    t.throws(() => readAddress(`postgres://db/x?${name}=1&${name}=2`, {}), {
      message: `${name} is more than once in DATABASE_URL`,
    })
})

/** Dials a server of the test's own, over TLS. */
async function dialTo(t: Test, server: Server, { more = '', signal = new AbortController().signal } = {}) {
  // A dial that fails leaves without reading what it was sent.
  server.on('connection', (socket) => socket.on('error', () => {}))
  server.listen(0, address)
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const to = readAddress(`postgres://${address}:${port}/x?sslmode=require${more}`, {})
  return dial(to.hosts[0]!, to, 10_000, signal)
}

t.test('with sslnegotiation=direct the client asks for the protocol that Postgres insists on', async (t) => {
  const [cert, key] = [await readFile(forAddress.cert), await readFile(forAddress.key)]
  const direct = createTlsServer({ cert, key, ALPNProtocols: ['postgresql'] })
  const accepted = once(direct, 'secureConnection')
  const client = await dialTo(t, direct, { more: '&sslnegotiation=direct' })
  const [served] = (await accepted) as [TLSSocket]
  t.equal(served.alpnProtocol, 'postgresql')
  client.destroy()
})

/** Asks for TLS where each of these is sent when bytes arrive; the last one ends the connection. */
const dialAnswering = (t: Test, ...texts: string[]) =>
  dialTo(
    t,
    createServer((socket) =>
      socket.on('data', () =>
        texts.length > 1 ? socket.write(texts.shift()!) : socket.end(texts.shift() ?? ''),
      ),
    ),
  )

t.test('plain text behind the answer that there is TLS is refused', async (t) => {
  const dialled = dialAnswering(t, 'SE')
  await t.rejects(dialled, { message: 'what answers there is not Postgres', isFinal: true })
})

t.test('a TLS fault is in words', async (t) => {
  const dialled = dialAnswering(t, 'S', 'HTTP/1.1 400 Bad Request')
  await t.rejects(dialled, { message: 'TLS: wrong version number', isFinal: true })
})

t.test('a Postgres that has no process left for the connection may have one later', async (t) => {
  await t.rejects(dialAnswering(t, 'Ecould not fork'), { code: 'CONNECTION_CLOSED', isFinal: false })
})

t.test('a dial that hangs within TLS ends with its pool, and proves nothing of the server', async (t) => {
  const ended = new AbortController()
  const hanging = createServer((socket) =>
    socket.once('data', () => {
      socket.once('data', () => ended.abort())
      socket.write('S')
    }),
  )
  await t.rejects(dialTo(t, hanging, ended), { code: 'CONNECTION_CLOSED', isFinal: false })
})

t.test('a dial that fails leaves no connection open', async (t) => {
  let closed: Promise<unknown> | undefined
  const plain = createServer((socket) => {
    closed = once(socket, 'close')
    socket.on('data', () => socket.write('N'))
  })
  await t.rejects(dialTo(t, plain), { message: /the server offers no TLS/ })
  await closed
})

t.test('a Unix socket needs no TLS', async (t) => {
  const local = createServer().listen(join(folder, '.s.PGSQL.5432'))
  await once(local, 'listening')
  t.teardown(() => local.close())
  const to = readAddress(`postgres://db/x?host=${folder}&sslmode=require`, {})
  const client = await dial(to.hosts[0]!, to, 5000, new AbortController().signal)
  client.destroy()
})

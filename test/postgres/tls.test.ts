// TLS to Postgres means what it means to libpq: whose certificate is accepted, under which name, and what the client shows.
import { chown, copyFile, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { createPool } from '../../src/postgres/pool.ts'
import type { SslSettings } from '../../src/postgres/ssl.ts'
import { until } from '../process/until.ts'
import { type Certificate, createAuthority } from '../services/certificates.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../services/folders.ts'
import { startPrivatePostgres } from '../services/index.ts'

const server = await startPrivatePostgres(t)
const admin = postgres(server.url, { max: 1, onnotice: () => {} })
const folder = await makeTemporaryFolder('certificates')
t.teardown(async () => {
  await admin.end({ timeout: 1 })
  await removeTemporaryFolder(folder)
})
const [{ data: dataFolder }] = (await admin`select current_setting('data_directory') as data`) as unknown as [
  { data: string },
]
const authority = await createAuthority(folder, 'authority')
const stranger = await createAuthority(folder, 'stranger')
const forName = await authority.sign('db', 'DNS:localhost')
const forAddress = await authority.sign('db', 'IP:127.0.0.1')
const root = authority.root

/** Changes settings of the running server; null takes TLS off. */
async function serveWith(certificate: Certificate | null) {
  if (certificate) {
    const { uid, gid } = await stat(dataFolder)
    const files = { cert: certificate.cert, key: certificate.key, ca: authority.root }
    for (const [name, from] of Object.entries(files)) {
      const file = join(dataFolder, `tls-${name}.pem`)
      await copyFile(from, file)
      await chown(file, uid, gid)
    }
  }
  const settings = { ssl_cert_file: 'tls-cert.pem', ssl_key_file: 'tls-key.pem', ssl_ca_file: 'tls-ca.pem' }
  for (const [name, value] of Object.entries(settings))
    await admin.unsafe(`alter system set ${name} = '${value}'`)
  await admin.unsafe(`alter system set ssl = ${certificate ? 'on' : 'off'}`)
  await reload(async () => (await sslOf('prefer')) === (certificate !== null))
}

async function reload(isDone: () => Promise<boolean>) {
  await admin`select pg_reload_conf()`
  await until('it is done', isDone)
}

/** Whether the connection is encrypted, or why there is none. */
async function connection(url: string, ssl?: SslSettings): Promise<boolean | string> {
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

const urlOf = (host: string, params: Record<string, string>, user = 'postgres') =>
  `postgres://${user}@${host}:${server.port}/postgres?${new URLSearchParams(params)}`
const sslOf = (sslmode: string) => connection(urlOf('127.0.0.1', { sslmode }))

const address = '127.0.0.1'
const otherHost = /certificate is for another host/
const untrusted = /TLS: .*(certificate|issuer)/

t.test('the certificate names the address', async (t) => {
  await serveWith(forAddress)
  const verify = { sslmode: 'verify-full', sslrootcert: root }
  t.equal(await connection(urlOf(address, verify)), true)
  t.match(await connection(urlOf('localhost', verify)), otherHost)
  const inParameters = new URLSearchParams({ host: address, port: String(server.port), ...verify })
  t.equal(
    await connection(`postgres://postgres@elsewhere/postgres?${inParameters}`),
    true,
    'the host as ?host=',
  )
})

t.test('the certificate names the host, and another authority signs none of ours', async (t) => {
  await serveWith(forName)
  const cases: [host: string, params: Record<string, string>, outcome: boolean | RegExp][] = [
    ['localhost', { sslmode: 'verify-full', sslrootcert: root }, true],
    [address, { sslmode: 'verify-full', sslrootcert: root }, otherHost],
    ['localhost', { sslmode: 'verify-full', sslrootcert: stranger.root }, untrusted],
    ['localhost', { sslmode: 'verify-full' }, untrusted],
    ['localhost', { sslmode: 'verify-full', sslrootcert: 'system' }, untrusted],
    ['localhost', { sslrootcert: 'system' }, untrusted],
    [address, { sslmode: 'verify-ca', sslrootcert: root }, true],
    [address, { sslmode: 'verify-ca', sslrootcert: stranger.root }, untrusted],
    [address, { sslmode: 'require', sslrootcert: root }, true],
    [address, { sslmode: 'require', sslrootcert: stranger.root }, untrusted],
    [address, { sslmode: 'require' }, true],
    [address, { sslmode: 'prefer' }, true],
    [address, { sslmode: 'allow' }, true],
    [address, { sslmode: 'disable' }, false],
    [address, {}, false],
  ]
  for (const [host, params, outcome] of cases) {
    const what = `${host} ${params.sslmode} ${params.sslrootcert ?? ''}`.replaceAll(folder, '')
    const found = await connection(urlOf(host, params))
    if (outcome instanceof RegExp) t.match(found, outcome, what)
    else t.equal(found, outcome, what)
  }
})

t.test('the settings of the environment count where the URL says nothing', async (t) => {
  const env = { sslmode: 'verify-full', sslrootcert: root }
  t.equal(await connection(urlOf('localhost', {}), env), true)
  t.match(await connection(urlOf(address, {}), env), otherHost)
  t.equal(await connection(urlOf(address, { sslmode: 'verify-ca' }), env), true, 'the URL comes first')
})

t.test('a server without TLS is refused, unless TLS is only preferred', async (t) => {
  await serveWith(null)
  t.match(await sslOf('require'), /offers no TLS/)
  t.match(await connection(urlOf(address, { sslmode: 'verify-ca', sslrootcert: root })), /offers no TLS/)
  t.equal(await sslOf('prefer'), false)
})

t.test('a server that wants a certificate of the client', async (t) => {
  await serveWith(forAddress)
  const hba = join(dataFolder, 'pg_hba.conf')
  const before = await readFile(hba, 'utf8')
  await admin`create role ada login`
  await admin`create role grace login`
  const rule =
    'hostssl all ada 127.0.0.1/32 cert\nhostssl all grace 127.0.0.1/32 trust clientcert=verify-full\n'
  await writeFile(hba, `${rule}${before}`)
  const ada = await authority.sign('ada')
  const url = (user: string, shown: Partial<Certificate>) =>
    urlOf(
      address,
      {
        sslmode: 'verify-full',
        sslrootcert: root,
        ...(shown.cert && { sslcert: shown.cert }),
        ...(shown.key && { sslkey: shown.key }),
      },
      user,
    )
  await reload(async () => typeof (await connection(url('ada', {}))) === 'string')
  t.equal(await connection(url('ada', ada)), true, 'its own')
  t.match(await connection(url('ada', {})), /client certificate/, 'none')
  t.match(await connection(url('grace', ada)), /authentication failed|certificate/, "another user's")
  t.equal(await connection(url('grace', await authority.sign('grace'))), true)
  t.type(await connection(url('ada', await stranger.sign('ada'))), 'string', "a stranger's")
})

t.test('a setting that is wrong is named, and its value is not told', async (t: Test) => {
  const broken = join(folder, 'broken.pem')
  await writeFile(broken, 'not a certificate')
  const open = (params: Record<string, string>, ssl?: SslSettings) =>
    createPool({
      url: urlOf('secret-host', params),
      ...(ssl && { ssl }),
      purpose: 'tls',
      max: 1,
      timeoutMs: 100,
    })
  const full = { sslmode: 'verify-full' }
  const cases: [params: Record<string, string>, ssl: SslSettings, message: RegExp][] = [
    [{ sslmode: 'verify' }, {}, /^sslmode in DATABASE_URL must be one of disable, .*verify-full$/],
    [{}, { sslmode: 'on' }, /^PGSSLMODE must be one of/],
    [
      { ...full, sslrootcert: '/nowhere/x' },
      {},
      /^sslrootcert in DATABASE_URL: .*cannot be read \(ENOENT\)$/,
    ],
    [full, { sslrootcert: '/nowhere/x' }, /^PGSSLROOTCERT: .*\(ENOENT\)$/],
    [full, { sslrootcert: broken }, /^PGSSLROOTCERT: the file cannot be used/],
    [{ ...full, sslcert: root, sslkey: '/nowhere/x' }, {}, /^sslkey in DATABASE_URL: .*\(ENOENT\)$/],
    [{ ...full, sslcert: broken, sslkey: broken }, {}, /^sslcert in DATABASE_URL: .*used/],
    [{ ...full, sslcert: forName.cert, sslkey: forAddress.key }, {}, /^sslkey in DATABASE_URL: .*used/],
    [{ ...full, sslcert: forName.cert }, {}, /^sslcert in DATABASE_URL needs sslkey$/],
    [{ ...full, sslkey: forName.key }, {}, /^sslkey in DATABASE_URL needs sslcert$/],
    [{ sslrootcert: root }, {}, /^sslrootcert in DATABASE_URL needs an sslmode/],
    [{ sslmode: 'verify-ca' }, {}, /verify-ca needs sslrootcert$/],
    [{ sslmode: 'require', sslrootcert: 'system' }, {}, /must be verify-full with sslrootcert=system$/],
  ]
  for (const [params, ssl, message] of cases) t.throws(() => open(params, ssl), { message })
})

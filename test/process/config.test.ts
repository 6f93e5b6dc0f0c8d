// The configuration: each variable's default, the values it accepts, and a refusal that names it
// and never shows its value.
import { writeFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { type Config, ConfigError, readConfig } from '../../src/config.ts'

const secret = 'thirty-two characters, at least!'
const given = { DATABASE_URL: 'postgres://db/latchkey', HASH_SECRET: secret }

/** The message of the refusal, or null. */
function fault(env: Record<string, string | undefined>): string | null {
  try {
    readConfig(env)
    return null
  } catch (error) {
    if (error instanceof ConfigError) return error.message
    throw error
  }
}

interface Variable {
  member: keyof Config
  fallback: unknown
  valid: [text: string, value: unknown][]
  invalid: string[]
}

const port = (member: keyof Config, fallback: number): Variable => ({
  member,
  fallback,
  valid: [
    ['0', 0],
    ['80', 80],
    ['65535', 65535],
  ],
  invalid: ['65536', '-1', '80.5', '8e1', 'http', '0x50', '99999999999999999999'],
})

const host = (member: keyof Config): Variable => ({
  member,
  fallback: '127.0.0.1',
  valid: [
    ['0.0.0.0', '0.0.0.0'],
    ['::', '::'],
    ['localhost', 'localhost'],
  ],
  invalid: ['two words', 'a/b', 'x\ny'],
})

const wholeNumber = (member: keyof Config, fallback: unknown, least: number, most: number): Variable => ({
  member,
  fallback,
  valid: [
    [String(least), least],
    [String(most), most],
  ],
  invalid: [String(least - 1), String(most + 1), '1.5', '1e2', 'many', '1,000', 'NaN', 'Infinity'],
})

const redisOf = (...nodes: [host: string, port: number][]) => ({
  nodes: nodes.map(([host, port]) => ({ host, port })),
  tls: false,
  username: undefined,
  password: undefined,
  db: 0,
})

const variables: Record<string, Variable> = {
  HOST: host('host'),
  OPS_HOST: host('opsHost'),
  PORT: port('port', 3000),
  OPS_PORT: port('opsPort', 9464),
  OPS_TOKEN: {
    member: 'opsTokens',
    fallback: [],
    valid: [
      ['sixteen-letters!', [{ name: 'operator', token: 'sixteen-letters!' }]],
      ['ada:sixteen-letters!', [{ name: 'ada', token: 'sixteen-letters!' }]],
      [
        `A.d_a-1:sixteen-letters!, ${'b'.repeat(64)}:with:colons:in:it`,
        [
          { name: 'A.d_a-1', token: 'sixteen-letters!' },
          { name: 'b'.repeat(64), token: 'with:colons:in:it' },
        ],
      ],
      [
        'sixteen-letters!,ada:seventeen-letters',
        [
          { name: 'operator', token: 'sixteen-letters!' },
          { name: 'ada', token: 'seventeen-letters' },
        ],
      ],
    ],
    invalid: [
      ...['short', 'fifteen-letters', 'ada:fifteen-letters', 'sixteen-letters!,', ',', ':sixteen-letters!'],
      ...[
        'two words, one comma',
        'sixteen letters ',
        'seize-caractères',
        'a b:sixteen-letters!',
        'a/b:sixteen-letters!',
      ],
      ...[`${'b'.repeat(65)}:sixteen-letters!`, 'ada:sixteen-letters!,ada:seventeen-letters'],
      ...['sixteen-letters!,seventeen-letters', 'ada:sixteen-letters!,bob:sixteen-letters!'],
    ],
  },
  METRICS_TOKEN: {
    member: 'metricsToken',
    fallback: null,
    valid: [['sixteen-letters!', 'sixteen-letters!']],
    invalid: ['fifteen-letters', 'sixteen letters!', 'seize-caractères'],
  },
  DATABASE_URL: {
    member: 'databaseUrl',
    fallback: null,
    valid: [
      ['postgres://u:p@db:5432/latchkey', 'postgres://u:p@db:5432/latchkey'],
      ['postgresql://db/x?sslmode=require', 'postgresql://db/x?sslmode=require'],
      ['postgres:///x?host=/run/postgresql', 'postgres:///x?host=/run/postgresql'],
      ['postgres://u:p@/x?host=db', 'postgres://u:p@localhost/x?host=db'],
      ['postgres://u:p@?host=db', 'postgres://u:p@localhost?host=db'],
      ['postgres://u:50%25off@db/my%20x', 'postgres://u:50%25off@db/my%20x'],
    ],
    invalid: [
      ...['db:5432/latchkey', 'mysql://db/x', 'postgres', 'postgres://', 'postgres://u@/x', 'redis://db'],
      ...['postgres://u:50%off@db/x', 'postgres://u%@db/x', 'postgres://db/x%e4', 'postgres://d%b/x'],
    ],
  },
  REDIS_URL: {
    member: 'redis',
    fallback: null,
    valid: [
      ['redis://r', redisOf(['r', 6379])],
      ['redis://[::1]:1', redisOf(['::1', 1])],
      [
        'rediss://u:p%40ss@r:6380/2',
        { ...redisOf(['r', 6380]), tls: true, username: 'u', password: 'p@ss', db: 2 },
      ],
      ['redis://a:1,redis://b:2, redis://c:3/0', redisOf(['a', 1], ['b', 2], ['c', 3])],
      ['rediss://:p@a,rediss://:p@b:2', { ...redisOf(['a', 6379], ['b', 2]), tls: true, password: 'p' }],
    ],
    invalid: [
      'r:6379',
      'http://r',
      'redis://a,b',
      'redis://a,',
      'redis://',
      'redis://r/two',
      'redis://a/2,redis://b/2',
      'redis://a,rediss://b',
      'redis://:p@a,redis://:q@b',
      'redis://u:p@a,redis://v:p@b',
      'redis://:p@a,redis://b',
      'redis://:%zz@a',
      'redis://a?db=2',
      'redis://a#2',
    ],
  },
  HASH_SECRET: {
    member: 'hashSecret',
    fallback: null,
    valid: [
      [secret, secret],
      ['x'.repeat(500), 'x'.repeat(500)],
    ],
    invalid: ['x'.repeat(31), 'changeme'],
  },
  HASH_SECRET_PREVIOUS: {
    member: 'hashSecretPrevious',
    fallback: null,
    valid: [['x'.repeat(32), 'x'.repeat(32)]],
    invalid: ['x'.repeat(31), 'changeme'],
  },
  WORKERS: {
    member: 'workers',
    fallback: 1,
    valid: [
      ['1', 1],
      ['128', 128],
      ['auto', 'auto'],
    ],
    invalid: ['0', '129', '1.5', 'all'],
  },
  DRAIN_SECONDS: {
    member: 'drainSeconds',
    fallback: 0,
    valid: [
      ['0', 0],
      ['15', 15],
    ],
    invalid: ['-1', '16', '1.5', 'long'],
  },
  DATA_DIR: {
    member: 'dataDir',
    fallback: '.latchkey',
    valid: [['/var/lib/latchkey', '/var/lib/latchkey']],
    invalid: [],
  },
  BASE_URL: {
    member: 'baseUrl',
    fallback: null,
    valid: [
      ['https://keys.example.com', 'https://keys.example.com'],
      ['https://example.com/api//', 'https://example.com/api'],
      ['http://[::1]:3000/a b', 'http://[::1]:3000/a%20b'],
    ],
    invalid: [
      'keys.example.com',
      'ftp://x',
      'https://',
      '/api',
      'https://x/?q=1',
      'https://x/#api',
      'https://x?',
      'https:/example.com',
      'https:example.com',
      'https:\\\\example.com',
      'https://user:password@example.com',
    ],
  },
  GITHUB_SCANNING_KEYS_FILE: {
    member: 'githubScanningKeysFile',
    fallback: null,
    valid: [['/etc/latchkey/github-keys.json', '/etc/latchkey/github-keys.json']],
    invalid: [],
  },
  LOG_LEVEL: {
    member: 'logLevel',
    fallback: 'info',
    valid: ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'].map((level) => [level, level]),
    invalid: ['verbose', 'INFO', '30'],
  },
  TRUST_PROXY: {
    member: 'trustProxy',
    fallback: false,
    valid: [
      ['false', false],
      ['2', 2],
      ['10.0.0.1', ['10.0.0.1']],
      ['10.0.0.0/8, ::1, fd00::/8', ['10.0.0.0/8', '::1', 'fd00::/8']],
      ['loopback, fe80::1%eth0', ['loopback', 'fe80::1%eth0']],
      ['linklocal,uniquelocal', ['linklocal', 'uniquelocal']],
    ],
    invalid: [
      // These would trust whatever the client wrote leftmost.
      ...['true', '0.0.0.0/0', '::/0', '*'],
      ...['0', '-1', '10.0.0.0/33', '::/129', '10.0.0', 'proxy.example.com', '10.0.0.1,', 'fe80::1%br-lan'],
      ...['10.0.0.0/255.0.0.0', '10.0.0.0/8/8', '10.0.0.0/'],
    ],
  },
  KEY_PREFIX: {
    member: 'tokenPrefix',
    fallback: 'lk',
    valid: [
      ['acme', 'acme'],
      ['K9', 'K9'],
      ['a'.repeat(16), 'a'.repeat(16)],
      ['apk1', 'apk1'],
      ['myreq', 'myreq'],
    ],
    invalid: ['apk', 'aud', 'ins', 'req', 'usr', 'a', '9lives', 'a_b', 'a-b', 'é1', 'a'.repeat(17), 'a.*'],
  },
  KEY_CACHE_SECONDS: wholeNumber('keyCacheSeconds', 5, 0, 60),
  OUTAGE_CACHE_SECONDS: wholeNumber('outageCacheSeconds', 60, 0, 60),
  MAX_KEYS_PER_USER: wholeNumber('maxKeysPerUser', 10_000, 1, 1_000_000),
  MAX_RATE_LIMIT_RPM: wholeNumber('maxRateLimitRpm', 1_000_000_000, 1, 1_000_000_000),
  DEFAULT_RATE_LIMIT_RPM: wholeNumber('defaultRateLimitRpm', 1000, 1, 1_000_000_000),
  ACCEPT_NEW_HASH_SECRET: {
    member: 'acceptNewHashSecret',
    fallback: false,
    valid: [
      ['0', false],
      ['1', true],
    ],
    invalid: ['true', 'yes', '2', '01', 'constructor'],
  },
  AUDIT_RETENTION_DAYS: wholeNumber('auditRetentionDays', 90, 1, 36_500),
  USAGE_RETENTION_DAYS: wholeNumber('usageRetentionDays', 90, 1, 36_500),
  REFUSALS_PER_ADDRESS_RPM: wholeNumber('refusalsPerAddressRpm', 6000, 1, 1_000_000_000),
}

for (const [name, { member, fallback, valid, invalid }] of Object.entries(variables)) {
  const others = name === 'DATABASE_URL' ? { HASH_SECRET: secret } : {}

  t.test(`${name} has its default when unset, empty or blank`, async (t) => {
    for (const text of [undefined, '', '  ']) t.strictSame(readConfig({ [name]: text })[member], fallback)
  })

  t.test(`${name} is read as given`, async (t) => {
    for (const [text, value] of valid)
      t.strictSame(readConfig({ ...others, [name]: text })[member], value, text)
  })

  if (invalid.length === 0) continue
  t.test(`${name} is refused by name and without its value`, async (t) => {
    for (const text of invalid) {
      const said = fault({ ...others, [name]: text })
      t.match(said, new RegExp(`^${name} must be `), JSON.stringify(text))
      t.notMatch(said, /\n/, 'one line')
    }
  })
}

t.test('the default limit of a key is at most the highest', async (t) => {
  t.match(readConfig({ MAX_RATE_LIMIT_RPM: '500' }), { defaultRateLimitRpm: 500 })
  const both = { MAX_RATE_LIMIT_RPM: '500', DEFAULT_RATE_LIMIT_RPM: '501' }
  t.equal(fault(both), 'DEFAULT_RATE_LIMIT_RPM must be a whole number from 1 to 500')
})

t.test('several hosts in the URL itself are refused, and the message says where they go', async (t) => {
  const several = { ...given, DATABASE_URL: 'postgres://u:p@h1:5432,h2:5432/db' }
  t.match(fault(several), /^DATABASE_URL must be .*several hosts.*\?host=a,b/)
})

t.test('a secret may be in a file instead', async (t) => {
  const folder = t.testdir({ url: 'postgres://db/latchkey\n', secret: ` ${secret}\r\n`, empty: ' \n' })
  const files = { DATABASE_URL_FILE: `${folder}/url`, HASH_SECRET_FILE: `${folder}/secret` }
  t.match(readConfig(files), { databaseUrl: given.DATABASE_URL, hashSecret: secret, drainSeconds: 3 })
  t.match(fault({ ...files, ...given }), /^DATABASE_URL and DATABASE_URL_FILE must .*; HASH_SECRET and /)
  t.match(readConfig({ ...given, HASH_SECRET_FILE: ' ' }), { hashSecret: secret }, 'blank is unset')
  for (const name of [
    'DATABASE_URL',
    'REDIS_URL',
    'HASH_SECRET',
    'HASH_SECRET_PREVIOUS',
    'OPS_TOKEN',
    'METRICS_TOKEN',
  ]) {
    for (const file of [`${folder}/hunter2`, folder, `${folder}/empty`]) {
      const said = fault({ [`${name}_FILE`]: file })
      t.match(said, new RegExp(`^${name}_FILE must be the path of a file`))
      t.notMatch(said, folder)
    }
  }
  const notUtf8 = [
    Buffer.from(`\ufeff${secret}\n`, 'utf16le'),
    Buffer.from(secret, 'utf16le'),
    Buffer.concat([Buffer.from(secret), Buffer.from([0xff])]),
    Buffer.from(`${secret}\0`),
  ]
  for (const content of notUtf8) {
    writeFileSync(`${folder}/secret`, content)
    t.equal(fault(files), 'HASH_SECRET_FILE must be a UTF-8 text file')
  }
  writeFileSync(`${folder}/secret`, `\ufeff${secret}`)
  t.match(readConfig(files), { hashSecret: secret })
  t.match(fault({ REDIS_URL_FILE: `${folder}/url` }), /^REDIS_URL must be/)
  t.equal(fault({ PORT_FILE: `${folder}/hunter2` }), null, 'only secrets')
})

t.test('no refusal shows a value, whichever variable it is in', async (t) => {
  const names = fc.constantFrom(...Object.keys(variables))
  const value = fc.stringMatching(/^[§¤][A-Za-z0-9 @:/]{4,30}$/)
  fc.assert(
    fc.property(fc.dictionary(names, value, { minKeys: 1 }), (env) => {
      const said = fault(env)
      return said === null || Object.values(env).every((text) => !said.includes(text.slice(0, 4)))
    }),
  )
  t.pass('for all that was tried')
})

t.test('all faults are named at once', async (t) => {
  const said = fault({ PORT: 'x', LOG_LEVEL: 'y', KEY_CACHE_SECONDS: '61' })!
  for (const name of ['PORT', 'LOG_LEVEL', 'KEY_CACHE_SECONDS']) t.match(said, name)
  t.notMatch(said, 'HASH_SECRET')
})

t.test('HASH_SECRET is required with a database that was given, and not with an embedded one', async (t) => {
  t.match(fault({ DATABASE_URL: given.DATABASE_URL }), /^HASH_SECRET is required/)
  t.match(fault({ DATABASE_URL: given.DATABASE_URL, HASH_SECRET: ' ' }), /^HASH_SECRET is required/)
  t.equal(fault(given), null)
  t.equal(fault({}), null)
  const tooShort = fault({ DATABASE_URL: given.DATABASE_URL, HASH_SECRET: 'short' })!
  t.equal(tooShort.split('HASH_SECRET').length, 2, 'its fault is named once')
})

t.test('HASH_SECRET_PREVIOUS must differ from HASH_SECRET', async (t) => {
  t.throws(() => readConfig({ HASH_SECRET: secret, HASH_SECRET_PREVIOUS: secret }), {
    message: 'HASH_SECRET_PREVIOUS must not be HASH_SECRET',
  })
})

t.test('the variables of libpq for TLS are read', async (t) => {
  const pgSsl = { sslmode: 'verify-full', sslrootcert: '/ca', sslcert: '/cert', sslkey: '/key' }
  const env = Object.entries(pgSsl).map(([name, value]) => [`PG${name.toUpperCase()}`, value])
  t.strictSame(readConfig(Object.fromEntries(env)).pgSsl, pgSsl)
})

t.test('a password that breaks the URL is refused with a line that says how to write it', async (t) => {
  const written = { '%': '%25', '/': '%2F', '#': '%23', '?': '%3F' }
  for (const [character, escaped] of Object.entries(written))
    t.match(fault({ DATABASE_URL: `postgres://u:p${character}w@db/x`, HASH_SECRET: secret }), escaped)
  t.match(fault({ REDIS_URL: 'redis://:p/w@r' }), 'password (percent-encoded)')
})

t.test('with DATABASE_URL there may be a load balancer, so DRAIN_SECONDS is 3', async (t) => {
  t.equal(readConfig({ DATABASE_URL: 'postgres://db/x', HASH_SECRET: secret }).drainSeconds, 3)
})

t.test('the configuration cannot be changed afterwards', async (t) => {
  const config = readConfig({ REDIS_URL: 'redis://r' }) as { -readonly [M in keyof Config]: Config[M] }
  t.throws(() => {
    config.port = 1
  }, TypeError)
  t.equal(config.port, 3000)
})

t.test('only `npm start` is a parent that may not pass on a signal', async (t) => {
  for (const [script, started] of [
    ['start', true],
    ['npx', false],
  ] as const)
    t.equal(readConfig({ npm_lifecycle_event: script }).startedByNpm, started)
})

t.test('other variables are ignored', async (t) => {
  t.strictSame(readConfig({ PATH: '/bin', PGPASSWORD: 'x', port: '1' }), readConfig({}))
})

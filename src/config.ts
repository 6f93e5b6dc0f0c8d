/**
 * The configuration: read from the environment once, checked whole, frozen. The only file that
 * reads settings from process.env.
 */
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { compile } from '@fastify/proxy-addr'
import { rateLimitMax } from '../schemas/bounds.ts'
import { idKinds } from './rules/id.ts'
import { parseRedisUrl, type RedisServers } from './rules/redis-url.ts'
import { secretText } from './rules/secret-text.ts'

export interface Config {
  host: string
  port: number
  opsHost: string
  opsPort: number
  /** Empty: requests from this machine need none, and others are refused. */
  opsTokens: readonly { name: string; token: string }[]
  /** null: anyone may read the metrics. */
  metricsToken: string | null
  /** The file with GitHub's public keys. null: GitHub's reports of leaked keys are not accepted. */
  githubScanningKeysFile: string | null
  /** null: an embedded Postgres in `dataDir`. */
  databaseUrl: string | null
  /** libpq's variables for TLS. The URL takes precedence. */
  pgSsl: { sslmode?: string; sslrootcert?: string; sslcert?: string; sslkey?: string }
  /** null: counting in memory. */
  redis: Readonly<RedisServers> | null
  /** null: one is created and stored in `dataDir` (embedded only). */
  hashSecret: string | null
  /** The previous secret. Its keys keep working and are rehashed when used. */
  hashSecretPrevious: string | null
  /** Start although none of the existing keys was made under the secrets given. */
  acceptNewHashSecret: boolean
  dataDir: string
  /** null: localhost and the bound port. */
  baseUrl: string | null
  logLevel: string
  /** Proxies in front: how many, or their addresses. */
  trustProxy: number | readonly string[] | false
  tokenPrefix: string
  keyCacheSeconds: number
  outageCacheSeconds: number
  maxKeysPerUser: number
  maxRateLimitRpm: number
  defaultRateLimitRpm: number
  /** How long the listener stays open after SIGTERM, so that a load balancer notices. */
  drainSeconds: number
  /** How long refusals are stored. Changes of keys and users are stored until deleted by hand. */
  auditRetentionDays: number
  /** How long usage is stored minute by minute. Roll-ups are stored for longer. */
  usageRetentionDays: number
  /**
   * Refusals recorded for one client address in a minute; beyond it nothing is written and the
   * answer is a 503.
   */
  refusalsPerAddressRpm: number
  /** Processes that answer requests. auto: one for each core. */
  workers: number | 'auto'
  /** Whether `npm start` is our parent: npm passes a signal to its shell, not to us. */
  startedByNpm: boolean
}

/** Names the wrong variables and says why. Never a value: it may be a secret in the wrong place. */
export class ConfigError extends Error {}

const hashSecretMinLength = 32
/** What may follow `Bearer ` in a header. */
const bearerToken = /^[\x21-\x7e]{16,}$/
/** Each may be in a file instead, which NAME_FILE names, as container platforms mount secrets. */
const secrets = [
  'DATABASE_URL',
  'REDIS_URL',
  'HASH_SECRET',
  'HASH_SECRET_PREVIOUS',
  'OPS_TOKEN',
  'METRICS_TOKEN',
]
const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']

type Env = Record<string, string | undefined>

export function readConfig(env: Env = process.env): Readonly<Config> {
  const { faults, given, read, integer, text, address, hashSecret } = createReader(env)
  const maxRateLimitRpm = integer('MAX_RATE_LIMIT_RPM', rateLimitMax, 1, rateLimitMax)
  const config: Config = {
    host: address('HOST'),
    port: integer('PORT', 3000, 0, 65535),
    opsHost: address('OPS_HOST'),
    opsPort: integer('OPS_PORT', 9464, 0, 65535),
    opsTokens: read<Config['opsTokens']>(
      'OPS_TOKEN',
      [],
      'a token of at least 16 visible ASCII characters, or several as name:token separated by commas, all different',
      parseOpsTokens,
    ),
    metricsToken: read<string | null>(
      'METRICS_TOKEN',
      null,
      'at least 16 visible ASCII characters',
      (value) => (bearerToken.test(value) ? value : undefined),
    ),
    githubScanningKeysFile: given('GITHUB_SCANNING_KEYS_FILE') ?? null,
    databaseUrl: read<string | null>(
      'DATABASE_URL',
      null,
      'a postgres:// URL, in which a literal % is written %25, and in a password / is %2F, # is %23 and ? is %3F, and several hosts go into ?host=a,b',
      parsePostgresUrl,
    ),
    pgSsl: Object.fromEntries(
      ['sslmode', 'sslrootcert', 'sslcert', 'sslkey'].map((name) => [name, given(`PG${name.toUpperCase()}`)]),
    ),
    redis: read<RedisServers | null>(
      'REDIS_URL',
      null,
      'a redis:// or rediss:// URL, its path a database number if any, or for a cluster several separated by commas, with the same scheme, user and password (percent-encoded) and no database number',
      parseRedisUrl,
    ),
    hashSecret: hashSecret('HASH_SECRET'),
    hashSecretPrevious: hashSecret('HASH_SECRET_PREVIOUS'),
    acceptNewHashSecret: read('ACCEPT_NEW_HASH_SECRET', false, '0 or 1', (value) =>
      value === '0' || value === '1' ? value === '1' : undefined,
    ),
    dataDir: given('DATA_DIR') ?? '.latchkey',
    baseUrl: read<string | null>(
      'BASE_URL',
      null,
      'an http:// or https:// URL without user, query and fragment',
      parseBaseUrl,
    ),
    logLevel: read('LOG_LEVEL', 'info', `one of ${logLevels.join(', ')}`, (value) =>
      logLevels.includes(value) ? value : undefined,
    ),
    trustProxy: read<number | readonly string[] | false>(
      'TRUST_PROXY',
      false,
      // `true` or a /0 would trust whatever the client wrote leftmost.
      'false, the number of proxies in front (1 to 100), or their addresses or CIDR blocks (no /0) separated by commas',
      parseTrustProxy,
    ),
    tokenPrefix: text(
      'KEY_PREFIX',
      'lk',
      `2 to 16 letters and digits, beginning with a letter, and none of ${idKinds.join(', ')}`,
      // A key that begins like an id would pass for one, and could get into a log of statements.
      new RegExp(`^(?!(?:${idKinds.join('|')})$)[A-Za-z][0-9A-Za-z]{1,15}$`),
    ),
    keyCacheSeconds: integer('KEY_CACHE_SECONDS', 5, 0, 60),
    outageCacheSeconds: integer('OUTAGE_CACHE_SECONDS', 60, 0, 60),
    maxKeysPerUser: integer('MAX_KEYS_PER_USER', 10_000, 1, 1_000_000),
    maxRateLimitRpm,
    defaultRateLimitRpm: integer(
      'DEFAULT_RATE_LIMIT_RPM',
      Math.min(1000, maxRateLimitRpm),
      1,
      maxRateLimitRpm,
    ),
    auditRetentionDays: integer('AUDIT_RETENTION_DAYS', 90, 1, 36_500),
    usageRetentionDays: integer('USAGE_RETENTION_DAYS', 90, 1, 36_500),
    refusalsPerAddressRpm: integer('REFUSALS_PER_ADDRESS_RPM', 6000, 1, 1_000_000_000),
    drainSeconds: integer(
      'DRAIN_SECONDS',
      (given('DATABASE_URL') ?? given('DATABASE_URL_FILE')) ? 3 : 0,
      0,
      15,
    ),
    workers: read('WORKERS', 1, workersRule, parseWorkers),
    startedByNpm: env.npm_lifecycle_event === 'start',
  }
  const isSecretFaulty = faults.some((fault) => fault.startsWith('HASH_SECRET'))
  if (config.databaseUrl !== null && config.hashSecret === null && !isSecretFaulty)
    faults.push('HASH_SECRET is required with DATABASE_URL')
  if (config.hashSecretPrevious !== null && config.hashSecretPrevious === config.hashSecret)
    faults.push('HASH_SECRET_PREVIOUS must not be HASH_SECRET')
  if (faults.length > 0) throw new ConfigError(faults.join('; '))
  return Object.freeze(config)
}

/** Reads variables one at a time, and gathers what is wrong with them. */
function createReader(env: Env) {
  const faults: string[] = []

  /** An empty variable counts as unset: compose files and CI pass it for "not given". */
  const given = (name: string) => env[name]?.trim() || undefined

  /** What the variable says, or the file that holds it. */
  function textOf(name: string): string | undefined {
    const text = given(name)
    const file = secrets.includes(name) ? given(`${name}_FILE`) : undefined
    if (file === undefined) return text
    if (text !== undefined) {
      faults.push(`${name} and ${name}_FILE must not both be set`)
      return undefined
    }
    const content = contentOf(file)
    if (content === null) faults.push(`${name}_FILE must be a UTF-8 text file`)
    else if (content === '')
      faults.push(`${name}_FILE must be the path of a file that can be read and is not empty`)
    return content || undefined
  }

  function read<T>(name: string, fallback: T, rule: string, parse: (text: string) => T | undefined): T {
    const text = textOf(name)
    if (text === undefined) return fallback
    const value = parse(text)
    if (value !== undefined) return value
    faults.push(`${name} must be ${rule}`)
    return fallback
  }
  const integer = (name: string, fallback: number, min: number, max: number) =>
    read(name, fallback, `a whole number from ${min} to ${max}`, (text) => wholeNumber(text, min, max))
  const text = (name: string, fallback: string, rule: string, pattern: RegExp) =>
    read(name, fallback, rule, (value) => (pattern.test(value) ? value : undefined))
  const address = (name: string) => text(name, '127.0.0.1', 'an address or host name', /^[0-9A-Za-z.:_-]+$/)
  const hashSecret = (name: string) =>
    read<string | null>(name, null, `at least ${hashSecretMinLength} characters long`, (value) =>
      value.length >= hashSecretMinLength ? value : undefined,
    )

  return { faults, given, read, integer, text, address, hashSecret }
}

export const workersMax = 128
export const workersRule = `auto, or a whole number from 1 to ${workersMax}`
export const parseWorkers = (text: string) => (text === 'auto' ? text : wholeNumber(text, 1, workersMax))

/** Empty if the file cannot be read; null if it is not UTF-8. */
function contentOf(file: string): string | null {
  let content: Buffer
  try {
    content = readFileSync(file)
  } catch {
    return ''
  }
  return secretText(content)
}

/** Undefined if the text is anything but such a number. */
export function wholeNumber(text: string, min: number, max: number): number | undefined {
  const value = Number(text)
  return /^[0-9]+$/.test(text) && value >= min && value <= max ? value : undefined
}

/**
 * `new URL` alone would accept and repair https:/example.com. A user or password would show in the
 * `docs_url` of every error.
 */
function parseBaseUrl(text: string): string | undefined {
  if (!/^https?:\/\/[^/\\?#@]+(?:\/[^?#]*)?$/.test(text) || !URL.canParse(text)) return undefined
  return new URL(text).href.replace(/\/+$/, '')
}

/**
 * libpq also takes the host as a parameter, where it may be the directory of a Unix socket:
 * postgres://ada@/db?host=/run/pg
 */
function parsePostgresUrl(text: string): string | undefined {
  const whole = text.replace(/^(postgres(?:ql)?:\/\/[^/?#]*@)(?=[/?]|$)/, '$1localhost')
  if (!/^postgres(ql)?:\/\//.test(whole) || !URL.canParse(whole)) return undefined
  const { username, password, hostname, pathname, searchParams } = new URL(whole)
  if (![username, password, hostname, pathname].every(isDecodable)) return undefined
  const namesHost = searchParams.get('host') || (hostname !== '' && whole === text)
  return namesHost ? whole : undefined
}

/** A URL may have a % that encodes nothing, but it cannot be decoded. */
function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

/**
 * A token without a name belongs to `operator`. Names and tokens must differ, or one would stand
 * for two people.
 */
function parseOpsTokens(text: string): { name: string; token: string }[] | undefined {
  const pairs = text.split(',').map((entry) => {
    const [, name = 'operator', token = ''] = /^(?:([^:]*):)?(.*)$/s.exec(entry.trim())!
    return { name, token }
  })
  const isGood = pairs.every(
    ({ name, token }) => /^[A-Za-z0-9._-]{1,64}$/.test(name) && bearerToken.test(token),
  )
  const areDifferent = (member: 'name' | 'token') =>
    new Set(pairs.map((pair) => pair[member])).size === pairs.length
  return isGood && areDifferent('name') && areDifferent('token') ? pairs : undefined
}

function parseTrustProxy(text: string): number | string[] | false | undefined {
  if (text === 'false') return false
  if (/^[0-9]+$/.test(text)) return wholeNumber(text, 1, 100)
  const addresses = text.split(',').map((address) => address.trim())
  return addresses.every(isAddressBlock) ? addresses : undefined
}

function isAddressBlock(text: string): boolean {
  if (['loopback', 'linklocal', 'uniquelocal'].includes(text)) return true
  if (isIP(text.replace(/\/[0-9]+$/, '')) === 0) return false
  try {
    // Refuses /0 blocks, and IPv6 zones with anything but letters and digits.
    compile(text)
    return true
  } catch {
    return false
  }
}

/** The options of the plugin and of the guard: checked like the service's environment, by their own names. */
import { type Config, ConfigError, readConfig } from '../config.ts'

export interface LatchkeyOptions {
  /** A postgres:// URL: where the keys and the audit log are. The tables are made at the start. */
  databaseUrl: string | undefined
  /**
   * A redis:// or rediss:// URL, or those of a cluster separated by commas. Without it this process
   * counts alone, in memory, and reads each key from Postgres.
   */
  redisUrl?: string | undefined
  /** At least 32 characters. The same for everything that shares the database. */
  hashSecret: string | undefined
  /** The previous secret. Its keys keep working and are rehashed when used. */
  hashSecretPrevious?: string | undefined
  /** Start although none of the existing keys was made under the secrets given. */
  acceptNewHashSecret?: boolean | undefined
  /** How each key begins, without the underscore: 2 to 16 letters and digits; `lk` unless given. */
  keyPrefix?: string | undefined
  /** How long a cached key is trusted while Redis confirms it: 0 to 60 s; 5 unless given. */
  keyCacheSeconds?: number | undefined
  /** How long it is trusted while Redis confirms it and Postgres is down: 0 to 60 s; 60 unless given. */
  outageCacheSeconds?: number | undefined
  /**
   * The URL of a Latchkey service whose error pages the `docs_url` of an error links to; those of
   * the project unless given.
   */
  baseUrl?: string | undefined
  /** Refusals recorded for one client address in a minute; 6000 unless given. Others are a 503. */
  refusalsPerAddressRpm?: number | undefined
  /** How long refusals are stored, in days; 90 unless given. */
  auditRetentionDays?: number | undefined
  /** How long usage is stored minute by minute, in days; 90 unless given. */
  usageRetentionDays?: number | undefined
  /**
   * How many times longer than usual to wait for Redis and Postgres; 1 unless given. For tests on a
   * busy machine.
   */
  patience?: number | undefined
}

type Checked = Exclude<keyof LatchkeyOptions, 'patience'>

const variables: Record<Checked, string> = {
  databaseUrl: 'DATABASE_URL',
  redisUrl: 'REDIS_URL',
  hashSecret: 'HASH_SECRET',
  hashSecretPrevious: 'HASH_SECRET_PREVIOUS',
  acceptNewHashSecret: 'ACCEPT_NEW_HASH_SECRET',
  keyPrefix: 'KEY_PREFIX',
  keyCacheSeconds: 'KEY_CACHE_SECONDS',
  outageCacheSeconds: 'OUTAGE_CACHE_SECONDS',
  baseUrl: 'BASE_URL',
  refusalsPerAddressRpm: 'REFUSALS_PER_ADDRESS_RPM',
  auditRetentionDays: 'AUDIT_RETENTION_DAYS',
  usageRetentionDays: 'USAGE_RETENTION_DAYS',
}

const optionOf = new Map(Object.entries(variables).map(([option, variable]) => [variable, option]))

/** A start error for an application: it names options instead of environment variables. */
export function startError(error: Error): Error {
  const message = error.message.replaceAll(/\b([A-Z]+(?:_[A-Z]+)+)\b(=1)?/g, (found, name, isSet) => {
    const option = optionOf.get(name)
    return option === undefined ? found : isSet ? `${option}: true` : option
  })
  const Kind = error instanceof ConfigError ? ConfigError : Error
  return new Kind(`latchkey: ${message}`, { cause: error })
}

/** `others`: the names of options that are not about Latchkey. Throws a ConfigError that names the bad ones. */
export function configOf(options: LatchkeyOptions, others: readonly string[] = []): Readonly<Config> {
  if (typeof options !== 'object' || options === null)
    throw new ConfigError('latchkey: databaseUrl and hashSecret are required')
  const known = [...Object.keys(variables), 'patience', ...others]
  // A misspelt redisUrl would count in memory.
  const unknown = Object.keys(options).filter((name) => !known.includes(name))
  if (unknown.length > 0) throw new ConfigError(`latchkey: unknown option ${unknown.join(', ')}`)
  const { patience = 1 } = options
  if (!Number.isFinite(patience) || patience <= 0)
    throw new ConfigError('latchkey: patience must be a positive number')
  const entries = Object.entries(variables).map(([option, variable]) => [
    variable,
    textOf(options[option as Checked]),
  ])
  try {
    const config = readConfig(Object.fromEntries(entries))
    // An application does not bring a Postgres of its own.
    if (config.databaseUrl === null) throw new ConfigError('DATABASE_URL is required: a postgres:// URL')
    return config
  } catch (error) {
    throw startError(error as Error)
  }
}

function textOf(value: string | number | boolean | undefined | null): string | undefined {
  if (value === undefined || value === null) return undefined
  return typeof value === 'boolean' ? String(Number(value)) : String(value)
}

/** Finds out whether a Postgres can do what the service needs, and changes nothing. */
import { clockFinding, type Finding, withoutAddress } from '../rules/finding.ts'
import { tallySecrets } from '../rules/key-hasher.ts'
import { Unavailable } from '../stores.ts'
import { adviceOn, describe, grantsSection, isServersFault, primaryAdvice } from './faults.ts'
import { keysBySecret, usableKeys } from './hash-secrets.ts'
import { compareSchema, countMissing, MigrationChanged, requireSearchPath } from './migrations.ts'
import { createPool, type Query } from './pool.ts'
import type { SslSettings } from './ssl.ts'
import { writableFirst } from './writable-first.ts'

interface ExamineOptions {
  url: string
  ssl: SslSettings
  /** Identify HASH_SECRET and HASH_SECRET_PREVIOUS; null where there is none. */
  secretId: string | null
  previousSecretId: string | null
  /** KEY_PREFIX. */
  tokenPrefix: string
  /** How many connections an instance opens at most. */
  connectionsMax: number
}

const timeoutMs = 5000
const oldestVersion = 12
const seePostgres = 'See "Postgres" in docs/operations.md.'

/** What the service does with each table. A test compares this with the documented grants. */
const tables: Record<string, string[]> = {
  schema_version: ['select'],
  users: ['select', 'insert', 'update'],
  api_keys: ['select', 'insert', 'update'],
  audit_log: ['select', 'insert'],
  key_usage: ['select', 'insert', 'update'],
  usage_minutes: ['select', 'insert', 'update'],
  key_usage_hours: ['select', 'insert', 'delete'],
  key_usage_days: ['select', 'insert', 'delete'],
  instances: ['select', 'insert', 'update', 'delete'],
  key_changes: ['select', 'delete'],
}
const isolationAdvice =
  'Set it to "read committed" for this role or database: at other levels, concurrent requests fail or exceed MAX_KEYS_PER_USER.'
const commitAdvice =
  'Set it to "on" for this role or database: a crash would lose changes and refusals that were answered.'
const floatAdvice =
  'Set it to 1, the default, for this role or database: with fewer digits, times are wrong and keys expire early or late.'
const sequences = ['instance_fences']
/** Reads of the whole audit log that the server's lock table should have room for. */
const readsAtOnce = 2
/** The only one that the service can do without. */
const dropPartitions = 'drop_audit_partitions'
/**
 * Includes functions that only other functions call: the owner may have revoked EXECUTE on them from
 * PUBLIC.
 */
const functions = [
  'ensure_audit_partitions',
  'ensure_usage_partitions',
  'drop_usage_partitions',
  dropPartitions,
  'caller_denial_reason',
  'create_key',
  'change_key',
  'revoke_key',
  'rotate_key',
  'usable_keys',
  'revoke_keys_of_user',
  'delete_user',
  'touch_and_confirm_keys',
  'rehash_keys',
  'store_usage',
  'roll_up_usage',
  'audit_entries',
  'key_server',
  'key_changes_epoch',
  'snapshot_of_epoch',
  'key_changes_since',
  'drop_key_changes',
]

export async function examinePostgres(options: ExamineOptions): Promise<Finding[]> {
  const { url, ssl } = options
  const findings: Finding[] = []
  let pool: ReturnType<typeof createPool>
  try {
    const first = await writableFirst(url, { ssl, timeoutMs }).catch((error) => {
      throw isServersFault(error) ? new Unavailable(describe(error), { cause: error }) : error
    })
    pool = createPool({ url: first, ssl, purpose: 'doctor', max: 1, timeoutMs })
  } catch (error) {
    return [unreachable(error as Error)]
  }
  try {
    findings.push(...(await pool.run(server)))
  } catch (error) {
    await pool.close()
    return [unreachable(error as Error)]
  }
  const checks: [about: string, check: (sql: Query) => Promise<Finding | null>][] = [
    ['Postgres connections', (sql) => connections(sql, options)],
    ['schema', (sql) => schema(sql, url)],
    ['Postgres privileges', privileges],
    ['audit partitions', partitions],
    ['hash secret', (sql) => secrets(sql, options)],
    ['key prefix', (sql) => prefixes(sql, options)],
  ]
  for (const [about, check] of checks) {
    const finding = await pool.run(check).catch((error): Finding => {
      return { about, state: 'wrong', found: reasonOf(error), advice: adviceAfter(error) }
    })
    if (finding === null) continue
    findings.push(finding)
    // Without its tables there is nothing more to look at.
    if (about === 'schema' && finding.state === 'wrong') break
  }
  await pool.close()
  return findings
}

function adviceAfter(error: Error): string {
  if (error instanceof MigrationChanged) return 'See "Upgrading" in docs/operations.md.'
  return settingsAdvice(error) ?? seePostgres
}

/** The pool puts an error of the server into one of its own. */
const serversAdvice = (error: Error) => adviceOn(error.cause ?? error)

function settingsAdvice(error: Error): string | null {
  const advice = serversAdvice(error)
  return advice && sentence(advice)
}

const sentence = (phrase: string) => `${phrase[0]!.toUpperCase()}${phrase.slice(1)}.`

/** Without the advice, which has a line of its own. */
const reasonOf = (error: Error) =>
  withoutAddress(error.message.replace('Postgres (doctor): ', '').replace(`; ${serversAdvice(error)}`, ''))

const tlsAdvice = 'See "TLS to Postgres" in docs/operations.md.'

/** SQLSTATE class 28: refused to log in; 3D: no such database. Without a cause, a setting is invalid. */
function connectionAdvice(error: Error): string | null {
  const { code = '', message = '' } = (error.cause ?? {}) as { code?: string; message?: string }
  if (!error.cause && /ssl(mode|rootcert|cert|key|negotiation)/i.test(error.message)) return tlsAdvice
  if (code.startsWith('28'))
    return 'Check the user and the password in DATABASE_URL, and pg_hba.conf of the server.'
  if (code.startsWith('3D')) return 'Check the name of the database in DATABASE_URL.'
  return code === 'CONNECT_UNUSABLE' && /TLS|certificate/.test(message) ? tlsAdvice : null
}

const unreachable = (error: Error): Finding => ({
  about: 'Postgres',
  state: 'wrong',
  found: reasonOf(error),
  // Any other fault is in the settings, such as those for TLS.
  advice:
    settingsAdvice(error) ??
    connectionAdvice(error) ??
    (error instanceof Unavailable
      ? 'Check DATABASE_URL, and that the server is running and accepts connections from this machine.'
      : seePostgres),
})

async function server(sql: Query): Promise<Finding[]> {
  await sql`select 1`
  const beforeMs = Date.now()
  const [row] = await sql`
    select extract(epoch from clock_timestamp())::float8 * 1000 as now_ms,
      current_setting('server_version') as version, current_setting('server_version_num')::int as number,
      current_setting('server_encoding') as encoding,
      current_setting('default_transaction_isolation') as isolation,
      current_setting('synchronous_commit') as commit,
      current_setting('extra_float_digits')::int as float_digits,
      pg_is_in_recovery() or current_setting('default_transaction_read_only')::bool as read_only`
  const afterMs = Date.now()
  const { now_ms, version, number, encoding, isolation, commit, float_digits, read_only } = row!
  const found = `version ${version}, answers in ${afterMs - beforeMs} ms`
  const about = 'Postgres'
  const fault =
    (number < oldestVersion * 10_000 && [`version ${version}`, `Upgrade it to ${oldestVersion} or later.`]) ||
    (read_only && ['takes no writes', sentence(primaryAdvice)]) ||
    (encoding !== 'UTF8' && [`encoding ${encoding}`, "Create the database with encoding 'UTF8'."]) ||
    (isolation !== 'read committed' && [`default_transaction_isolation is ${isolation}`, isolationAdvice]) ||
    (commit === 'off' && ['synchronous_commit is off', commitAdvice]) ||
    (float_digits < 0 && [`extra_float_digits is ${float_digits}`, floatAdvice])
  const state: Finding = fault
    ? { about, state: 'wrong', found: fault[0], advice: fault[1] }
    : { about, state: 'ok', found }
  return [state, clockFinding('Postgres clock', now_ms, beforeMs, afterMs)]
}

/** Null if an instance can open and keep as many as it needs. */
async function connections(sql: Query, { connectionsMax }: ExamineOptions): Promise<Finding | null> {
  const [row] = await sql`
    select min(allowed)::int as allowed, current_setting('idle_session_timeout', true) as idle_timeout
    from (
      select rolconnlimit as allowed from pg_roles where rolname = current_user
      union all select datconnlimit from pg_database where datname = current_database()
      union all select current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
    ) as limits where allowed >= 0`
  const { allowed, idle_timeout } = row!
  const about = 'Postgres connections'
  if (allowed < connectionsMax) {
    const found = `${allowed} allowed, and an instance opens up to ${connectionsMax}`
    const advice =
      'Raise max_connections, or the limit of the role or the database. Behind PgBouncer, fewer are enough.'
    return { about, state: 'note', found, advice }
  }
  if (!['0', null].includes(idle_timeout)) {
    const advice = 'Set it to 0 for this role: Latchkey keeps its connections open.'
    return { about, state: 'note', found: `idle_session_timeout is ${idle_timeout}`, advice }
  }
  return null
}

async function schema(sql: Query, url: string): Promise<Finding> {
  const about = 'schema'
  await requireSearchPath(sql, url)
  const { version, missing, unknown } = await compareSchema(sql)
  if (missing > 0) {
    const advice =
      'Run "latchkey migrate" as the owner of the tables, or start the service as a role that may create tables.'
    return { about, state: 'wrong', found: countMissing(missing), advice }
  }
  if (unknown > 0) {
    const advice = 'Upgrade this Latchkey, too.'
    return { about, state: 'note', found: `version ${version}, newer than this Latchkey`, advice }
  }
  return { about, state: 'ok', found: `version ${version}, up to date` }
}

async function privileges(sql: Query): Promise<Finding> {
  const asked = Object.entries(tables).flatMap(([name, all]) => all.map((privilege) => ({ name, privilege })))
  const lacking = await sql`
    select privilege || ' on ' || name as missing
    from json_to_recordset(${JSON.stringify(asked)}::text::json) as asked (name text, privilege text)
    where not has_table_privilege(name, privilege)
    union all
    select privilege || ' on sequence ' || name from unnest(array['usage', 'select']) as privilege,
      unnest(${`{${sequences.join()}}`}::text::text[]) as name
    where not has_sequence_privilege(name, privilege)
    union all
    select 'execute on function ' || p.proname
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace and n.nspname = current_schema()
    where p.proname = any (${`{${functions.join()}}`}::text::text[])
      and not has_function_privilege(p.oid, 'execute')`
  const missing = lacking.map((row) => row.missing as string)
  const about = 'Postgres privileges'
  if (missing.length === 0) return { about, state: 'ok', found: 'all that the service needs' }
  const [only, ...more] = missing
  if (more.length === 0 && only!.includes(dropPartitions)) {
    const advice = 'Drop old partitions from a scheduler, as the owner, or grant it.'
    return { about, state: 'note', found: `without ${only}, old refusals stay`, advice }
  }
  return {
    about,
    state: 'wrong',
    found: `missing: ${missing.join(', ')}`,
    advice: `Grant them: ${grantsSection}.`,
  }
}

async function partitions(sql: Query): Promise<Finding> {
  const about = 'audit partitions'
  const [row] = await sql`
    select count(*) filter (where c.relname >= today)::int as days, bool_or(c.relname = today) as has_today,
      count(*)::int as all_days,
      sum(1 + (select count(*) from pg_index where indrelid = c.oid))::int as locks,
      current_setting('max_locks_per_transaction')::int
        * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) as locks_max
    from pg_inherits join pg_class c on c.oid = inhrelid,
      to_char(now() at time zone 'UTC', '"audit_refusals_"YYYYMMDD') as today
    where inhparent = 'audit_refusals'::regclass`
  const { days, has_today, all_days, locks, locks_max } = row!
  if (!has_today) {
    const advice = 'Start the service or run "latchkey migrate": either makes them.'
    return { about, state: 'wrong', found: 'none for today: no refusal can be recorded', advice }
  }
  // What reads the whole log locks all of them, with their indexes.
  if (locks * readsAtOnce > locks_max) {
    const found = `${all_days} days: reading them takes ${locks} of the ${locks_max} locks of the server`
    const advice = 'Raise max_locks_per_transaction of Postgres, or lower AUDIT_RETENTION_DAYS.'
    return { about, state: 'note', found, advice }
  }
  return { about, state: 'ok', found: `cover ${days} days` }
}

async function secrets(sql: Query, options: ExamineOptions): Promise<Finding> {
  const about = 'hash secret'
  const { usable, previous, other } = tallySecrets(await keysBySecret(sql), options)
  if (other > 0 && options.secretId === null) {
    const found = 'hash-secret in DATA_DIR is missing, and every key in the database was made under it'
    return { about, state: 'wrong', found, advice: 'Restore it, or set HASH_SECRET to its content.' }
  }
  if (other > 0) {
    const found = `${other} of ${usable} usable keys were made under another secret, and are refused`
    const advice = 'Set HASH_SECRET (or HASH_SECRET_PREVIOUS) to the secret they were made under.'
    return { about, state: other === usable ? 'wrong' : 'note', found, advice }
  }
  if (previous > 0) {
    const advice = 'Keep HASH_SECRET_PREVIOUS until "latchkey keys rehash-status" shows none left.'
    return {
      about,
      state: 'note',
      found: `${previous} of ${usable} usable keys are still hashed under the previous`,
      advice,
    }
  }
  return {
    about,
    state: 'ok',
    found: usable === 0 ? 'no usable keys yet' : `fits all usable keys (${usable})`,
  }
}

/** Null if all usable keys have the prefix. */
async function prefixes(sql: Query, { tokenPrefix }: ExamineOptions): Promise<Finding | null> {
  const [row] = await sql`
    select count(*)::float8 as usable,
      (count(*) filter (where not starts_with(key_prefix, ${`${tokenPrefix}_`})))::float8 as other
    from ${usableKeys(sql)}`
  const { usable, other } = row!
  if (other === 0) return null
  const found = `${other} of ${usable} usable keys have another prefix, and are refused`
  const advice = 'Set KEY_PREFIX to the prefix they were made with, or revoke them.'
  return { about: 'key prefix', state: other === usable ? 'wrong' : 'note', found, advice }
}

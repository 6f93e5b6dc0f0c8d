/** latchkey audit …: why requests were refused, and what was changed. */
import { type AuditReason, auditReasons } from '../../schemas/bounds.ts'
import type { Config } from '../config.ts'
import { tokenFormat } from '../rules/token.ts'
import type { AuditEntry, AuditEvent, AuditFilter, AuditLog, RefusalCounts } from '../stores.ts'
import { command, group, moment, noKey, noUser, print, type Readers, table, withReaders } from './command.ts'
import { followAudit } from './follow.ts'
import {
  aboutUser,
  event,
  follow,
  followLimitDefault,
  key,
  limit,
  listLimitDefault,
  reason,
  rows,
  since,
  statsSince,
  type Time,
  until,
} from './options.ts'

const statsSpanS = 3600

interface Filter {
  reason?: AuditReason
  event?: AuditEvent
  key?: string
  user?: string
  since?: Time
  until?: Time
  limit?: number
  follow?: true
  json?: true
}

async function toFilter({ audit }: Readers, options: Filter): Promise<AuditFilter> {
  const { key, user, follow, limit, reason, event } = options
  const most = limit ?? (follow ? followLimitDefault : listLimitDefault)
  const span = await spanOf(audit, options)
  checkSpan(span)
  return { reason, event, ...span, keyId: key, userId: user, limit: most }
}

/** Ages count back from the clock of the entries: that of this machine may differ. */
async function spanOf(audit: Pick<AuditLog, 'now'>, { since, until }: Pick<Filter, 'since' | 'until'>) {
  const nowS = (await audit.now()) / 1000
  return { since: since?.(nowS), until: until?.(nowS) }
}

function checkSpan({ since, until }: Pick<AuditFilter, 'since' | 'until'>): void {
  if (since !== undefined && until !== undefined && since >= until)
    throw new Error('--since must be before --until')
}

/** No entries would look as if nothing had happened to the key or user. */
async function checkIds({ keys, users }: Readers, { key, user }: Filter): Promise<void> {
  if (key !== undefined && (await keys.get(key, null)) === null) throw noKey(key)
  if (user !== undefined && (await users.get(user)) === null) throw noUser(user)
}

const head = ['occurred', 'request', 'event', 'reason', 'key', 'method', 'path', 'ip', 'actor']
const row = (entry: AuditEntry) =>
  [
    entry.occurred_at,
    entry.request_id,
    entry.event,
    entry.reason,
    entry.key_id,
    entry.method,
    entry.path,
    entry.ip,
    entry.actor,
  ].map((value) => value ?? '-')

/** Wide enough for nearly all values. */
const followWidths = [24, 30, 13, 14, 30, 6]

export const entriesTable = (entries: AuditEntry[]) => table(head, entries.map(row))

const find = command('find <req_…>', {
  summary: 'show why a request was refused, or what it changed',
  example: 'audit find req_0mwpepm4t0000025uf9bfeblpp',
  async run({ config, args: [id = ''] }) {
    // Applications that use the package choose their request ids: any text but a key may be one.
    const isKey = tokenFormat(config.tokenPrefix).isIn(id)
    const [entry, ...more] = isKey ? [] : await withReaders(config, ({ audit }) => audit.find(id))
    if (entry === undefined) throw new Error(`no audit entry has the request id ${id}`)
    return {
      json: more.length === 0 ? entry : { ...entry, more },
      lines: [entry, ...more].flatMap((one, i) => [...(i === 0 ? [] : ['']), ...factsOf(one)]),
    }
  },
})

function factsOf(entry: AuditEntry): string[] {
  const present = Object.entries(entry).filter(([, value]) => value !== null)
  return table(
    null,
    present.map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  )
}

const list = command<Filter>('list', {
  summary: 'list entries, newest first',
  example: 'audit list --reason revoked --since 1h',
  options: [reason, event, key, aboutUser, since, until, limit, follow],
  async run({ config, options }) {
    if (options.follow) return followList(config, options)
    const entries = await withReaders(config, async (readers) => {
      await checkIds(readers, options)
      return readers.audit.list(await toFilter(readers, options))
    })
    return { json: entries, lines: entriesTable(entries) }
  },
})

/** With --json, each entry is one line. */
async function followList(config: Config, options: Filter): Promise<undefined> {
  const show = (entries: AuditEntry[]) => {
    for (const entry of entries)
      print({ json: entry, lines: table(null, [row(entry)], followWidths) }, options)
  }
  if (!options.json) print({ json: null, lines: table(null, [head], followWidths) }, options)
  await withReaders(config, async (readers) => {
    await checkIds(readers, options)
    await followAudit(readers.audit, await toFilter(readers, options), show)
  })
}

const stats = command<Pick<Filter, 'since' | 'until'> & { limit: number }>('stats', {
  summary: 'count refusals by reason, by key and by address',
  example: 'audit stats --since 1h',
  options: [statsSince, until, rows],
  async run({ config, options: { limit, ...options } }) {
    const { since, until, reasons, keys, addresses } = await withReaders(config, async ({ audit }) => {
      const hourBefore: Time = (nowS) => (options.until?.(nowS) ?? nowS) - statsSpanS
      const now: Time = (nowS) => nowS
      // Refusals that arrive meanwhile must not be in one of the counts only.
      const asked = await spanOf(audit, { since: hourBefore, until: now, ...options })
      const since = Math.floor(asked.since!)
      const until = options.until && Math.floor(asked.until!)
      checkSpan({ since, until })
      const span = { since, until: until ?? asked.until, limit }
      return {
        since,
        until,
        reasons: await audit.countRefusals('reason', { ...span, limit: auditReasons.length }),
        keys: await audit.countRefusals('key_id', span),
        addresses: await audit.countRefusals('ip', span),
      }
    })
    const total = reasons.reduce((sum, { refusals }) => sum + refusals, 0)
    const counted = (title: string, found: RefusalCounts, none: string) => [
      '',
      ...table(
        [title, 'refusals'],
        found.map(({ value, refusals }) => [value ?? none, String(refusals)]),
      ),
    ]
    return {
      json: { since, until: until ?? null, refusals: total, reasons, keys, addresses },
      lines: [
        `${total} refusals since ${moment(since)}${until === undefined ? '' : ` until ${moment(until)}`}`,
        ...counted('reason', reasons, '-'),
        ...counted('key', keys, '(no known key)'),
        ...counted('address', addresses, '(unknown)'),
      ],
    }
  },
})

export const auditCommands = () =>
  group('audit', 'refusals, and changes of keys and users', [find, list, stats])

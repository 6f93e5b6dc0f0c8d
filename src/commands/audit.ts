/** latchkey audit find | list: the only way to see why a request was refused. */
import { type AuditReason, auditReasons } from '../../schemas/audit.ts'
import type { AuditEntry } from '../stores.ts'
import { type Command, table, wholeNumber, withStores } from './command.ts'

const listLimitDefault = 100
const listLimitMax = 10_000

export const auditFind: Command = {
  takes: [],
  id: 'req_',
  async run(config, { id }) {
    const [entry] = await withStores(config, ({ audit }) => audit.find(id))
    if (entry === undefined) throw new Error(`no audit entry has the request id ${id}`)
    const present = Object.entries(entry).filter(([, value]) => value !== null)
    const rows = present.map(([name, value]) => [
      name,
      typeof value === 'string' ? value : JSON.stringify(value),
    ])
    return { json: entry, lines: table(null, rows) }
  },
}

export const auditList: Command = {
  takes: ['reason', 'key', 'since', 'limit'],
  async run(config, { reason, key, since, limit }) {
    if (reason !== undefined && !(auditReasons as readonly string[]).includes(reason)) {
      throw new Error(`--reason must be one of ${auditReasons.join(', ')}`)
    }
    const filter = {
      reason: reason as AuditReason | undefined,
      keyId: key,
      since: since === undefined ? undefined : sinceS(since, Date.now() / 1000),
      limit: limit === undefined ? listLimitDefault : wholeNumber('limit', limit, 1, listLimitMax),
    }
    const entries = await withStores(config, ({ audit }) => audit.list(filter))
    return { json: entries, lines: table(head, entries.map(row)) }
  },
}

const head = ['occurred', 'request', 'event', 'reason', 'key', 'method', 'path', 'ip']
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
  ].map((value) => value ?? '-')

const unitS = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Unix seconds, an ISO 8601 date, or an age such as 15m, as Unix seconds. */
export function sinceS(text: string, nowS: number): number {
  const age = /^([0-9]+)([smhd])$/.exec(text)
  if (age) return Math.max(0, nowS - Number(age[1]) * unitS[age[2] as keyof typeof unitS])
  if (/^[0-9]{1,11}$/.test(text)) return Number(text)
  const ms = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(ms))
    throw new Error('--since must be Unix seconds, an ISO 8601 date, or an age such as 90s, 15m, 6h, 7d')
  return ms / 1000
}

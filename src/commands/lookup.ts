/** latchkey lookup: identifies what a customer has sent. */
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { Writable } from 'node:stream'
import { lookupMaxLength, lookupPattern } from '../../schemas/bounds.ts'
import type { KeyCounters } from '../../schemas/counters.ts'
import type { AdminKey } from '../../schemas/key.ts'
import type { Lookup } from '../../schemas/lookup.ts'
import { createLookup, keyIn } from '../ops/admin/find-anything.ts'
import { type TokenFormat, tokenFormat } from '../rules/token.ts'
import { adminKeyBody } from '../stores.ts'
import { entriesTable } from './audit.ts'
import { command, isStdinDirectory, moment, operator, requireUtf8, table, withStores } from './command.ts'

/** The lines of a paste come faster than this. */
const quietMs = 100
/** As of a process that SIGINT ends. */
const interruptedCode = 130

export const lookup = command('lookup <anything>', {
  summary: 'show what a key, prefix, id or external id is; - reads it from stdin',
  example: 'lookup -      (type or pipe a whole key, so that it stays out of your shell history)',
  async run({ config, args: [given = ''] }) {
    // An external id may have outer white space, but not the line break that ends it here.
    const query = given === '-' ? (await fromStdin()).replace(/\r?\n$/, '') : given
    requireUtf8([query])
    const trimmed = query.trim()
    if (trimmed === '' || trimmed.length > lookupMaxLength)
      throw new Error(`lookup needs 1 to ${lookupMaxLength} characters`)
    if (!new RegExp(lookupPattern, 'u').test(trimmed)) throw new Error('lookup takes no control characters')
    const format = tokenFormat(config.tokenPrefix)
    const isKey = keyIn(trimmed, format) !== null
    if (given !== '-' && isKey) process.stderr.write(`${historyWarning}\n`)
    const found = await withStores(
      config,
      (stores) => {
        const counter = stores.counter.mode() === 'memory' ? null : stores.counter
        return createLookup({ ...stores, counter })(query, { lane: operator(), toBody: adminKeyBody })
      },
      { needsHashSecret: isKey },
    )
    if (found === null)
      throw new Error(`nothing found: no key, prefix, id or external id matches${hintFor(trimmed, format)}`)
    return { json: found, lines: linesOf(found) }
  },
})

/** A key is found by its hash, or by the part that is stored: not by another part. */
function hintFor(query: string, format: TokenFormat): string {
  const length = format.displayPrefixLength
  if (format.isPartialPrefix(query)) return `; give all ${length} characters of a prefix`
  const isPart = query.startsWith(`${format.prefix}_`) && query.length > length && !format.isIn(query)
  return isPart ? `; give a whole key, or only its first ${length} characters` : ''
}

const historyWarning =
  'latchkey: this key is now in the history of your shell, and other users of this machine could see it. Next time: latchkey lookup -'

async function fromStdin(): Promise<string> {
  const { stdin } = process
  if (stdin.isTTY) return typed()
  if (isStdinDirectory()) throw new Error('stdin is a directory: pipe the query into lookup -, or type it')
  let text = ''
  for await (const chunk of stdin.setEncoding('utf8')) {
    text += chunk
    if (text.length > lookupMaxLength) break
  }
  return text
}

/** Not shown while it is typed. A paste of several lines belongs together: none may reach the shell. */
async function typed(): Promise<string> {
  const hidden = new Writable({ write: (_chunk, _encoding, done) => done() })
  const lines = createInterface({ input: process.stdin, output: hidden, terminal: true })
  process.stderr.write('Key, prefix, id or external id (not shown): ')
  let text = ''
  let quiet: NodeJS.Timeout | undefined
  lines.on('line', (line) => {
    text += `${line}\n`
  })
  process.stdin.on('keypress', () => {
    clearTimeout(quiet)
    // A pasted command may begin with an empty line, and go on after a backslash.
    if (lines.line !== '' || text.trim() === '' || /\\\s*$/.test(text)) return
    // What has come while this process was busy is read first.
    quiet = setTimeout(() => setImmediate(() => lines.close()), quietMs)
  })
  lines.on('SIGINT', () => {
    lines.close()
    process.stderr.write('\n')
    process.exit(interruptedCode)
  })
  await once(lines, 'close')
  process.stderr.write('\n')
  return text
}

function linesOf(found: Lookup): string[] {
  const isRequest = found.type === 'request'
  const facts: [string, string][] = [
    ['what', isRequest ? `request ${found.entries[0]!.request_id}` : found.type],
  ]
  if (found.type === 'keys') return table(null, [...facts, ...found.keys.flatMap(factsOfKey)])
  if (found.state !== undefined) facts.push(['state', found.state])
  if (found.type !== 'user' && found.key) facts.push(...factsOfKey(found.key))
  if (found.type === 'key' && found.counters) {
    const { source, current, last } = found.counters
    // This process is new, so it has counted nothing itself.
    if (source === 'local') facts.push(['counters', 'unknown: Redis is not counting'])
    else facts.push(['this minute', counted(current)], ['last minute', counted(last)])
  }
  const { user } = found
  if (user) facts.push(['user', `${user.id}  ${user.name}`], ['external id', user.external_id ?? '-'])
  if (user?.deleted_at) facts.push(['user deleted', moment(user.deleted_at)])
  const trail = isRequest ? found.entries : found.refusals
  if (trail.length === 0) return table(null, facts)
  return [...table(null, facts), '', isRequest ? 'audit entries' : 'latest refusals', ...entriesTable(trail)]
}

const factsOfKey = (key: AdminKey): [string, string][] => [
  ['key', `${key.id}  ${key.key_prefix}…  ${key.name}`],
  ['limit', `${key.rate_limit_rpm} a minute`],
  ['created', moment(key.created_at)],
  ['last used', moment(key.last_used_at)],
  ['expires', moment(key.expires_at)],
  ['revoked', moment(key.revoked_at)],
]

const counted = ({ used, limited }: KeyCounters['current']) => `${used} requests, ${limited} over the limit`

/** The operations that are measured: as a request, and as the call that sends the same statement. */
import { listLimitMax } from '../../schemas/bounds.ts'
import { mintKey, numberedId } from '../keys.ts'
import { type RecordedStores, sampleAuditId } from './statements.ts'

export const keysPerUser = 200
/** Few enough that the service has the callers' keys in its cache. */
export const usersAtOnce = 400

/** Whom a request is about. */
export interface Place {
  user: number
  /** The user's first key, which sends the request. */
  caller: number
  /** Another key of the user. */
  key: number
}

/** The keys that an operation takes of each user, in turn. */
export interface Span {
  first: number
  count: number
}

export interface Operation {
  name: string
  /** Method and path. */
  request(place: Place): string
  body?: string
  /** Sends the statement of that request. */
  call(stores: RecordedStores, place: Place): Promise<unknown>
  http: Span
  pgbench: Span
  /** It uses a key up. */
  onlyOnce?: boolean
  /** It writes an audit entry. */
  isChange?: boolean
  /** It is on the ops listener. */
  isOps?: boolean
}

export const keyId = (n: number) => numberedId('apk_', n)
export const userId = (n: number) => numberedId('usr_', n)
/** A refusal of this key is in the audit log under this id. */
export const requestId = (n: number) => numberedId('req_', n)

/** The keys that stay. */
export const staying = { first: 1, count: 9 }
const stay = { http: staying, pgbench: staying }
/** The last key of the first user: no span has it. */
export const sample: Place = { user: 0, caller: 0, key: keysPerUser - 1 }
const newKey = { id: `apk_${'x'.repeat(26)}`, hash: Buffer.alloc(32, 0xab) }
const newRequestId = `req_${'x'.repeat(26)}`
const name = 'a key of a benchmark'

const actor = ({ caller }: Place, method: string, path: string) => ({
  requestId: newRequestId,
  keyId: keyId(caller),
  operator: null,
  method,
  path,
  ip: '127.0.0.1',
  userAgent: null,
})
const pathOf = ({ key }: Place) => `/v1/keys/${keyId(key)}`

export const operations: Operation[] = [
  {
    name: 'create',
    request: () => 'POST /v1/keys',
    body: JSON.stringify({ name }),
    call: ({ keys }, place) => {
      const wanted = { userId: userId(place.user), name, rateLimitRpm: 1000, expiresAt: null }
      return keys.create({ ...mintKey(wanted).key, ...newKey }, actor(place, 'POST', '/v1/keys'))
    },
    ...stay,
    isChange: true,
  },
  {
    name: 'list',
    request: () => 'GET /v1/keys',
    call: ({ keys }, { user }) => keys.list(userId(user), { limit: listLimitMax + 1 }),
    ...stay,
  },
  {
    name: 'get',
    request: (place) => `GET ${pathOf(place)}`,
    call: ({ keys }, { user, key }) => keys.get(keyId(key), userId(user)),
    ...stay,
  },
  {
    name: 'change',
    request: (place) => `PATCH ${pathOf(place)}`,
    body: JSON.stringify({ rate_limit_rpm: 600 }),
    call: ({ keys }, place) =>
      keys.change(
        keyId(place.key),
        userId(place.user),
        { rateLimitRpm: 600 },
        actor(place, 'PATCH', pathOf(place)),
      ),
    ...stay,
    isChange: true,
  },
  {
    name: 'revoke',
    request: (place) => `DELETE ${pathOf(place)}`,
    call: ({ keys }, place) =>
      keys.revoke(keyId(place.key), userId(place.user), actor(place, 'DELETE', pathOf(place))),
    // pgbench revokes about twice as many a second.
    http: { first: 10, count: 63 },
    pgbench: { first: 73, count: 126 },
    onlyOnce: true,
    isChange: true,
  },
  {
    name: 'audit find',
    request: ({ key }) => `GET /admin/audit?request_id=${requestId(key)}`,
    call: ({ audit }, { key }) => audit.list({ requestId: requestId(key), limit: listLimitMax + 1 }),
    ...stay,
    isOps: true,
  },
]

/** The nth request of an operation. Users are served in groups, and each key of a group once. */
export function placeOf(n: number, { first, count }: Span): Place {
  const [inTurn, group] = [Math.floor(n / usersAtOnce), Math.floor(n / usersAtOnce / count)]
  const user = group * usersAtOnce + (n % usersAtOnce)
  const caller = user * keysPerUser
  return { user, caller, key: caller + first + (inTurn % count) }
}

/** The same in pgbench's language, with n as `:at`. After the last user, it starts again. */
export const placeScript = (users: number, { first, count }: Span) =>
  [
    `\\set user (:at / ${usersAtOnce * count} * ${usersAtOnce} + :at % ${usersAtOnce}) % ${users}`,
    `\\set caller :user * ${keysPerUser}`,
    `\\set key :caller + ${first} + :at / ${usersAtOnce} % ${count}`,
    '',
  ].join('\n')

/** What pgbench sends where the statement of the sample has these texts. */
export const expressions = new Map(
  [
    [keyId(sample.caller), 'apk_', 'caller'],
    [keyId(sample.key), 'apk_', 'key'],
    [userId(sample.user), 'usr_', 'user'],
    [requestId(sample.key), 'req_', 'key'],
    [newKey.id, 'apk_9', 'at'],
    [newRequestId, 'req_9', 'at'],
    [sampleAuditId, 'aud_', 'at'],
  ].map(([text, prefix, variable]) => [
    text!,
    `'${prefix}' || lpad(:${variable}::text, ${30 - prefix!.length}, '0')`,
  ]),
).set(newKey.hash.toString('hex'), 'repeat(md5(:at::text), 2)')

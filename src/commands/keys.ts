/** latchkey keys …: for the operator, for any user and without a key. */
import { displayPrefixPattern, type KeyState } from '../../schemas/bounds.ts'
import { tallySecrets } from '../rules/key-hasher.ts'
import { tokenFormat } from '../rules/token.ts'
import { adminKeyBody, type ExpiresInPast, type StoredKey } from '../stores.ts'
import { allPages } from './all-pages.ts'
import {
  actor,
  command,
  group,
  moment,
  noKey,
  noUser,
  print,
  type Readers,
  table,
  withReaders,
  withStores,
} from './command.ts'
import {
  checkLabel,
  checkRateLimit,
  expiresAt,
  expiresIn,
  name,
  newRateLimitRpm,
  noExpiry,
  prefix,
  rateLimitRpm,
  status,
  user,
} from './options.ts'
import { scan } from './scan.ts'

const notActive = (id: string) => new Error(`key ${id} is revoked or expired`)
const expiresInPast = ({ nowS }: ExpiresInPast) =>
  new Error(`--expires-at must be in the future; it is now ${Math.floor(nowS)}`)

const head = ['id', 'prefix', 'state', 'rpm', 'created', 'last used', 'expires', 'owner', 'name']
const row = (key: StoredKey, isOwnerDeleted = false) => [
  key.id,
  key.displayPrefix,
  key.state === 'active' && isOwnerDeleted ? 'owner_deleted' : key.state,
  String(key.rateLimitRpm),
  moment(key.createdAt),
  moment(key.lastUsedAt),
  moment(key.expiresAt),
  key.userId,
  key.name,
]
const show = (key: StoredKey, isOwnerDeleted?: boolean) => ({
  json: adminKeyBody(key),
  lines: table(head, [row(key, isOwnerDeleted)]),
})

/** The deleted ones among the owners of these keys. */
async function deletedOwners(users: Readers['users'], keys: StoredKey[]): Promise<Set<string>> {
  const deleted = new Set<string>()
  for (const id of new Set(keys.map(({ userId }) => userId)))
    if ((await users.get(id))?.deleted_at != null) deleted.add(id)
  return deleted
}

const showOnce = (key: StoredKey, token: string) => ({
  json: { ...adminKeyBody(key), plain_key: token },
  lines: [`${key.id}  ${key.name}`, token, '(The key is shown only this once.)'],
  newKeyId: key.id,
})

interface Settings {
  rateLimitRpm?: number
  expiresAt?: number | false
}

const create = command<Settings & { user: string; name: string; json?: true }>('create', {
  summary: 'create a key and print it, once',
  example: 'keys create --user usr_0mwpeo45t00000l0hjaqcx0kw6 --name ci --rate-limit-rpm 600',
  requires: [user, name],
  options: [newRateLimitRpm, expiresAt],
  async run({ config, options }) {
    const { user: userId, name, rateLimitRpm = config.defaultRateLimitRpm, expiresAt } = options
    checkLabel('--name', name, config)
    checkRateLimit(rateLimitRpm, config)
    const wanted = { userId, name, rateLimitRpm, expiresAt: expiresAt || null }
    const created = await withStores(
      config,
      async ({ keys, mintKey }) => {
        const { token, key } = mintKey(wanted)
        const created = await keys.create(key, actor())
        // Before the connections are closed: Ctrl-C would lose the key.
        if (created.ok) print(showOnce(created.key, token), options)
        return created
      },
      { needsHashSecret: true },
    )
    if (created.ok) return undefined
    if (created.reason === 'expires_in_past') throw expiresInPast(created)
    throw new Error(
      created.reason === 'limit_reached'
        ? `user ${userId} already has ${config.maxKeysPerUser} usable keys (MAX_KEYS_PER_USER)`
        : `there is no user ${userId}, or it is deleted`,
    )
  },
})

const list = command<{ user?: string; prefix?: string; status?: KeyState }>('list', {
  summary: 'list the keys of a user, or those with a given prefix',
  example: 'keys list --prefix lk_fYOeo2E',
  options: [user, prefix, status],
  async run({ config, options: { user: userId = null, prefix, status } }) {
    if (userId === null && prefix === undefined) throw new Error('keys list needs --user or --prefix')
    if (prefix !== undefined && !new RegExp(displayPrefixPattern).test(prefix))
      throw new Error('--prefix takes the first characters as shown; for a whole key: latchkey lookup -')
    const format = tokenFormat(config.tokenPrefix)
    if (prefix !== undefined && prefix.length !== format.displayPrefixLength)
      throw new Error(`--prefix needs the ${format.displayPrefixLength} characters of a prefix, as shown`)
    const { found, deleted } = await withReaders(config, async ({ keys, users }) => {
      if (userId !== null && (await users.get(userId)) === null) throw noUser(userId)
      const found = await allPages((page) => keys.list(userId, { ...page, status, displayPrefix: prefix }))
      return { found, deleted: await deletedOwners(users, found) }
    })
    const rows = found.map((key) => row(key, deleted.has(key.userId)))
    return { json: found.map(adminKeyBody), lines: table(head, rows) }
  },
})

const get = command('get <apk_…>', {
  summary: 'show a key',
  example: 'keys get apk_0mwper0pk00000mdrnk1c8vb2d',
  async run({ config, args: [id = ''] }) {
    return withReaders(config, async ({ keys, users }) => {
      const key = await keys.get(id, null)
      if (key === null) throw noKey(id)
      const deleted = await deletedOwners(users, [key])
      return show(key, deleted.has(key.userId))
    })
  },
})

const update = command<Settings & { name?: string }>('update <apk_…>', {
  summary: 'change a key; returns once every instance acts on it',
  example: 'keys update apk_0mwper0pk00000mdrnk1c8vb2d --rate-limit-rpm 6000',
  options: [name, rateLimitRpm, expiresAt, noExpiry],
  async run({ config, options: { name, rateLimitRpm, expiresAt }, args: [id = ''] }) {
    const change = {
      ...(name !== undefined && { name }),
      ...(rateLimitRpm !== undefined && { rateLimitRpm }),
      ...(expiresAt !== undefined && { expiresAt: expiresAt === false ? null : expiresAt }),
    }
    if (Object.keys(change).length === 0)
      throw new Error('keys update needs --name, --rate-limit-rpm, --expires-at or --no-expires-at')
    if (name !== undefined) checkLabel('--name', name, config)
    if (rateLimitRpm !== undefined) checkRateLimit(rateLimitRpm, config)
    const { changed, deleted } = await withStores(config, async ({ keys, users }) => {
      const changed = await keys.change(id, null, change, actor())
      return { changed, deleted: await deletedOwners(users, changed.ok ? [changed.key] : []) }
    })
    if (changed.ok) return show(changed.key, deleted.has(changed.key.userId))
    if (changed.reason === 'expires_in_past') throw expiresInPast(changed)
    throw changed.reason === 'absent' ? noKey(id) : notActive(id)
  },
})

const rotate = command<{ expiresIn?: number; json?: true }>('rotate <apk_…>', {
  summary:
    'replace a key with a new one, printed once; the old key is revoked, or expires after --expires-in',
  example: 'keys rotate apk_0mwper0pk00000mdrnk1c8vb2d --expires-in 3600',
  options: [expiresIn],
  async run({ config, options, args: [id = ''] }) {
    const rotated = await withStores(
      config,
      ({ keys, mintKey }) => {
        const { token, key: successor } = mintKey({})
        // Before the wait for every instance: the old key may already be refused, and Ctrl-C would
        // lose the new one.
        const onStored = (key: StoredKey) => print(showOnce(key, token), options)
        return keys.rotate(id, null, { successor, graceS: options.expiresIn ?? 0, onStored }, actor())
      },
      { needsHashSecret: true },
    )
    if (rotated.ok) return undefined
    if (rotated.reason === 'already_rotated')
      throw new Error(
        `key ${id} has already been rotated: ${rotated.successorId} replaced it; if its secret is lost, rotate that one`,
      )
    if (rotated.reason === 'limit_reached')
      throw new Error('too many rotated keys of this user still work: rotate without --expires-in')
    if (rotated.reason === 'owner_deleted') throw new Error(`the owner of key ${id} is deleted`)
    throw rotated.reason === 'not_active' ? notActive(id) : noKey(id)
  },
})

const revoke = command('revoke <apk_…>', {
  summary: 'revoke a key; returns once every instance refuses it',
  example: 'keys revoke apk_0mwper0pk00000mdrnk1c8vb2d',
  async run({ config, args: [id = ''] }) {
    const revoked = await withStores(config, ({ keys }) => keys.revoke(id, null, actor()))
    if (!revoked.ok) throw noKey(id)
    const { key } = revoked
    return { json: adminKeyBody(key), lines: [`${key.id}  ${key.name}  revoked ${moment(key.revokedAt)}`] }
  },
})

const rehashStatus = command('rehash-status', {
  summary: 'how many keys are not yet hashed under HASH_SECRET',
  example: 'keys rehash-status',
  async run({ config }) {
    const { counts, hasher } = await withReaders(config, async ({ keys, hasher }) => ({
      counts: await keys.countBySecret(),
      hasher,
    }))
    const { usable, current, previous, other } = tallySecrets(counts, hasher)
    const left = previous + other
    const rows = [
      ['HASH_SECRET', String(current)],
      ['HASH_SECRET_PREVIOUS', hasher.previousSecretId === null ? 'not set' : String(previous)],
      ['neither', String(other)],
    ]
    return {
      json: { usable, current, left, previous, other },
      lines: [
        `${left} of ${usable} usable keys are left to be hashed under HASH_SECRET`,
        '',
        ...table(['hashed under', 'keys'], rows),
      ],
    }
  },
})

export const keysCommands = () =>
  group('keys', 'API keys of any user', [create, list, get, update, rotate, revoke, scan, rehashStatus])

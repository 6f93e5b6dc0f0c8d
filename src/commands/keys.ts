/** latchkey keys …: for the operator, for any user and without a key. */
import { expiresAtEndS, rateLimitMax } from '../../schemas/key.ts'
import { listLimitMax } from '../../schemas/list.ts'
import { keyState } from '../rules/key-state.ts'
import { type KeyStore, keyBody, type StoredKey } from '../stores.ts'
import {
  type Args,
  type Command,
  moment,
  operator,
  requiredName,
  table,
  wholeNumber,
  withStores,
} from './command.ts'

const nowS = () => Math.floor(Date.now() / 1000)

function requiredUser({ user }: Args): string {
  if (user === undefined) throw new Error('--user is required')
  return user
}

export const keysCreate: Command = {
  takes: ['user', 'name', 'rate-limit-rpm', 'expires-at'],
  async run(config, args) {
    const userId = requiredUser(args)
    const name = requiredName(args, config)
    const { 'rate-limit-rpm': rpm, 'expires-at': expiry } = args
    const wanted = {
      userId,
      name,
      rateLimitRpm:
        rpm === undefined ? config.defaultRateLimitRpm : wholeNumber('rate-limit-rpm', rpm, 1, rateLimitMax),
      expiresAt: expiry === undefined ? null : wholeNumber('expires-at', expiry, 1, expiresAtEndS - 1),
    }
    const { token, created } = await withStores(
      config,
      async ({ keys, mintKey }) => {
        const { token, key } = mintKey(wanted)
        return { token, created: await keys.create(key, operator()) }
      },
      { mintsKeys: true },
    )
    if (!created.ok) {
      if (created.reason === 'expires_in_past')
        throw new Error(`--expires-at must be in the future; it is now ${Math.floor(created.nowS)}`)
      throw new Error(
        created.reason === 'limit_reached'
          ? `user ${userId} already has ${config.maxKeysPerUser} usable keys (MAX_KEYS_PER_USER)`
          : `there is no user ${userId}, or it is deleted`,
      )
    }
    return {
      json: { ...keyBody(created.key), plain_key: token },
      lines: [`${created.key.id}  ${created.key.name}`, token, '(The key is shown only this once.)'],
    }
  },
}

export const keysList: Command = {
  takes: ['user'],
  async run(config, args) {
    const userId = requiredUser(args)
    const found = await withStores(config, async ({ keys, users }) => {
      if ((await users.get(userId)) === null) throw new Error(`there is no user ${userId}`)
      return allOf(keys, userId)
    })
    const rows = found.map((key) => [
      key.id,
      key.displayPrefix,
      keyState(key, nowS()),
      String(key.rateLimitRpm),
      moment(key.createdAt),
      moment(key.lastUsedAt),
      moment(key.expiresAt),
      key.name,
    ])
    return {
      json: found.map(keyBody),
      lines: table(['id', 'prefix', 'state', 'rpm', 'created', 'last used', 'expires', 'name'], rows),
    }
  },
}

async function allOf(keys: KeyStore, userId: string): Promise<StoredKey[]> {
  const all: StoredKey[] = []
  for (;;) {
    const page = await keys.list(userId, { limit: listLimitMax, startingAfter: all.at(-1)?.id })
    all.push(...(page ?? []))
    if (page === null || page.length < listLimitMax) return all
  }
}

export const keysRevoke: Command = {
  takes: [],
  id: 'apk_',
  async run(config, { id }) {
    const revoked = await withStores(config, ({ keys }) => keys.revoke(id, null, operator()))
    if (!revoked.ok) throw new Error(`there is no key ${id}`)
    const { key } = revoked
    return { json: keyBody(key), lines: [`${key.id}  ${key.name}  revoked ${moment(key.revokedAt)}`] }
  },
}

export const keysRehashStatus: Command = {
  takes: [],
  async run(config) {
    const { counts, hasher } = await withStores(config, async ({ keys, hasher }) => ({
      counts: await keys.countBySecret(),
      hasher,
    }))
    const usable = [...counts.values()].reduce((sum, keys) => sum + keys, 0)
    const under = (secretId: string | null) => (secretId === null ? 0 : (counts.get(secretId) ?? 0))
    const current = under(hasher.secretId)
    const previous = under(hasher.previousSecretId)
    const left = usable - current
    const rows = [
      ['HASH_SECRET', String(current)],
      ['HASH_SECRET_PREVIOUS', hasher.previousSecretId === null ? 'not set' : String(previous)],
      ['neither', String(left - previous)],
    ]
    return {
      json: { usable, current, left, previous, other: left - previous },
      lines: [
        `${left} of ${usable} usable keys are left to be hashed under HASH_SECRET`,
        '',
        ...table(['hashed under', 'keys'], rows),
      ],
    }
  },
}

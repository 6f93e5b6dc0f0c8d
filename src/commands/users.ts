/** latchkey users …: for the operator. */
import { newId } from '../rules/id.ts'
import { tokenFormat } from '../rules/token.ts'
import type { User } from '../stores.ts'
import { allPages } from './all-pages.ts'
import { actor, command, group, moment, noUser, table, withReaders, withStores } from './command.ts'
import { checkLabel, externalId, name, noExternalId } from './options.ts'

const externalIdTaken = () => new Error('another user has this external id')

const head = ['id', 'created', 'deleted', 'external id', 'name']
const row = (user: User) => [
  user.id,
  moment(user.created_at),
  moment(user.deleted_at),
  user.external_id ?? '-',
  user.name,
]

const describe = (user: User) => ({
  json: user,
  lines: [
    `${user.id}  ${user.name}${user.deleted_at === null ? '' : `  deleted ${moment(user.deleted_at)}`}`,
  ],
})

const create = command<{ name: string; externalId?: string }>('create', {
  summary: 'create a user',
  example: 'users create --name Ada --external-id customer-17',
  requires: [name],
  options: [externalId],
  async run({ config, options: { name, externalId = null } }) {
    checkLabel('--name', name, config)
    if (externalId !== null) checkLabel('--external-id', externalId, config)
    const user = { id: newId('usr_'), name, externalId }
    const created = await withStores(config, ({ users }) => users.create(user, actor()), {
      createsDatabase: true,
    })
    if (!created.ok) throw externalIdTaken()
    return describe(created.user)
  },
})

const list = command<{ externalId?: string }>('list', {
  summary: 'list all users, or the one with an external id',
  example: 'users list --external-id customer-17',
  options: [externalId],
  async run({ config, options: { externalId } }) {
    const found = await withReaders(config, async ({ users }) => {
      // Oldest first.
      if (externalId === undefined) return (await allPages((page) => users.list(page))).reverse()
      // No external id contains a key, and a key must not be in a statement.
      if (tokenFormat(config.tokenPrefix).isIn(externalId)) return []
      return (await users.list({ limit: 1, externalId }))!
    })
    return { json: found, lines: table(head, found.map(row)) }
  },
})

const get = command('get <usr_…>', {
  summary: 'show a user',
  example: 'users get usr_0mwpeo45t00000l0hjaqcx0kw6',
  async run({ config, args: [id = ''] }) {
    const user = await withReaders(config, ({ users }) => users.get(id))
    if (user === null) throw noUser(id)
    return { json: user, lines: table(head, [row(user)]) }
  },
})

const update = command<{ name?: string; externalId?: string | false }>('update <usr_…>', {
  summary: 'change the name or the external id of a user',
  example: 'users update usr_0mwpeo45t00000l0hjaqcx0kw6 --external-id customer-17',
  options: [name, externalId, noExternalId],
  async run({ config, options: { name, externalId }, args: [id = ''] }) {
    if (name === undefined && externalId === undefined)
      throw new Error('users update needs --name, --external-id or --no-external-id')
    if (name !== undefined) checkLabel('--name', name, config)
    if (typeof externalId === 'string') checkLabel('--external-id', externalId, config)
    const change = {
      ...(name !== undefined && { name }),
      ...(externalId !== undefined && { externalId: externalId === false ? null : externalId }),
    }
    const changed = await withStores(config, ({ users }) => users.change(id, change, actor()))
    if (!changed.ok) throw changed.reason === 'absent' ? noUser(id) : externalIdTaken()
    return { json: changed.user, lines: table(head, [row(changed.user)]) }
  },
})

const revokeKeys = command('revoke-keys <usr_…>', {
  summary: 'revoke all keys of a user; returns once every instance refuses them',
  example: 'users revoke-keys usr_0mwpeo45t00000l0hjaqcx0kw6',
  async run({ config, args: [id = ''] }) {
    const revoked = await withStores(config, ({ users }) => users.revokeKeys(id, actor()))
    if (revoked === null) throw noUser(id)
    return { json: { revoked }, lines: [`${id}  ${revoked} ${revoked === 1 ? 'key' : 'keys'} revoked`] }
  },
})

const remove = command('delete <usr_…>', {
  summary: 'soft-delete a user; returns once every instance refuses the keys',
  example: 'users delete usr_0mwpeo45t00000l0hjaqcx0kw6',
  async run({ config, args: [id = ''] }) {
    const user = await withStores(config, ({ users }) => users.remove(id, actor()))
    if (user === null) throw noUser(id)
    return describe(user)
  },
})

export const usersCommands = () =>
  group('users', 'the owners of keys', [create, list, get, update, revokeKeys, remove])

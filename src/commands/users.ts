/** latchkey users create | list | delete */
import { listLimitMax } from '../../schemas/list.ts'
import { newId } from '../rules/id.ts'
import type { User, UserStore } from '../stores.ts'
import { type Command, moment, operator, requiredName, table, withStores } from './command.ts'

const describe = (user: User) =>
  `${user.id}  ${user.name}${user.deleted_at === null ? '' : `  deleted ${moment(user.deleted_at)}`}`

export const usersCreate: Command = {
  takes: ['name'],
  async run(config, args) {
    const name = requiredName(args, config)
    const created = await withStores(
      config,
      ({ users }) => users.create({ id: newId('usr_'), name }, operator()),
      { createsDatabase: true },
    )
    if (!created.ok) throw new Error('another user has this external id')
    const { user } = created
    return { json: user, lines: [describe(user)] }
  },
}

export const usersList: Command = {
  takes: [],
  async run(config) {
    const users = await withStores(config, ({ users }) => allOf(users))
    const rows = users.map((user) => [user.id, moment(user.created_at), moment(user.deleted_at), user.name])
    return { json: users, lines: table(['id', 'created', 'deleted', 'name'], rows) }
  },
}

/** Oldest first. */
async function allOf(users: UserStore): Promise<User[]> {
  const all: User[] = []
  for (;;) {
    const page = await users.list({ limit: listLimitMax, startingAfter: all.at(-1)?.id })
    all.push(...(page ?? []))
    if (page === null || page.length < listLimitMax) return all.reverse()
  }
}

export const usersDelete: Command = {
  takes: [],
  id: 'usr_',
  async run(config, { id }) {
    const user = await withStores(config, ({ users }) => users.remove(id, operator()))
    if (user === null) throw new Error(`there is no user ${id}`)
    return { json: user, lines: [describe(user)] }
  },
}

/** Users, for operators: create, list, get, change, delete, and revoke all keys of one. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { ApiError } from '../../../plugins/api-error.ts'
import {
  CreateUserBody,
  ListUsersQuery,
  PatchUserBody,
  RevokedKeys,
  User,
  UserList,
  UserParams,
} from '../../../schemas/user.ts'
import { actorOf } from '../../http/routes/actor.ts'
import { ignoreBody } from '../../http/routes/bodies.ts'
import { requireNoKeyIn } from '../../http/routes/key-rules.ts'
import { limitOf, pageOf } from '../../http/routes/lists.ts'
import { newId } from '../../rules/id.ts'
import type { TokenFormat } from '../../rules/token.ts'
import type { UserStore } from '../../stores.ts'
import { laneOf, notFound } from './admin-rules.ts'

export interface UserRoutesOptions {
  users: UserStore
  tokenFormat: TokenFormat
}

const externalIdTaken = () => new ApiError('external_id_taken', { param: 'external_id' })

export const userRoutes: FastifyPluginAsyncTypebox<UserRoutesOptions> = async (
  app,
  { users, tokenFormat },
) => {
  app.post(
    '/admin/users',
    {
      schema: {
        operationId: 'createUser',
        summary: 'Create a user',
        tags: ['Users'],
        body: CreateUserBody,
        response: { 201: User },
        sends: ['location'],
        errors: ['external_id_taken'],
      },
    },
    async (request, reply) => {
      const { name, external_id: externalId = null } = request.body
      requireNoKeyIn(tokenFormat, request.body)
      const wanted = { id: newId('usr_'), name, externalId }
      const created = await users.create(wanted, actorOf(request, tokenFormat))
      if (!created.ok) throw externalIdTaken()
      return reply.code(201).header('location', `/admin/users/${created.user.id}`).send(created.user)
    },
  )

  app.get(
    '/admin/users',
    {
      schema: {
        operationId: 'listUsers',
        summary: 'List users',
        description: 'Newest first.',
        tags: ['Users'],
        querystring: ListUsersQuery,
        response: { 200: UserList },
        errors: ['not_found'],
      },
    },
    async (request) => {
      const { external_id, starting_after } = request.query
      const limit = limitOf(request.query)
      // No external id contains a key, and a key must not be in a statement.
      if (external_id !== undefined && tokenFormat.isIn(external_id)) return pageOf([], limit, String)
      const page = { limit: limit + 1, startingAfter: starting_after, externalId: external_id }
      const found = await users.list(page, laneOf(request))
      if (found === null) throw notFound('starting_after')
      return pageOf(found, limit, ({ id }) => id)
    },
  )

  app.get(
    '/admin/users/:id',
    {
      schema: {
        operationId: 'getUser',
        summary: 'Get a user',
        tags: ['Users'],
        params: UserParams,
        response: { 200: User },
      },
    },
    async (request) => {
      const user = await users.get(request.params.id, laneOf(request))
      if (user === null) throw notFound()
      return user
    },
  )

  app.patch(
    '/admin/users/:id',
    {
      schema: {
        operationId: 'updateUser',
        summary: 'Change a user',
        tags: ['Users'],
        params: UserParams,
        body: PatchUserBody,
        response: { 200: User },
        errors: ['external_id_taken'],
      },
    },
    async (request) => {
      const { name, external_id } = request.body
      requireNoKeyIn(tokenFormat, request.body)
      const change = {
        ...(name !== undefined && { name }),
        ...(external_id !== undefined && { externalId: external_id }),
      }
      const changed = await users.change(request.params.id, change, actorOf(request, tokenFormat))
      if (!changed.ok) throw changed.reason === 'absent' ? notFound() : externalIdTaken()
      return changed.user
    },
  )

  app.delete(
    '/admin/users/:id',
    {
      schema: {
        operationId: 'deleteUser',
        summary: 'Delete a user',
        description: 'Soft-deletes: once the response is sent, no instance accepts a key of the user.',
        tags: ['Users'],
        params: UserParams,
        response: { 200: User },
      },
      onRequest: ignoreBody,
    },
    async (request) => {
      const user = await users.remove(request.params.id, actorOf(request, tokenFormat))
      if (user === null) throw notFound()
      return user
    },
  )

  app.post(
    '/admin/users/:id/revoke-keys',
    {
      schema: {
        operationId: 'revokeKeysOfUser',
        summary: 'Revoke all keys of a user',
        description: 'Once the response is sent, no instance accepts any of them. The user may get new keys.',
        tags: ['Users'],
        params: UserParams,
        response: { 200: RevokedKeys },
      },
      onRequest: ignoreBody,
    },
    async (request) => {
      const revoked = await users.revokeKeys(request.params.id, actorOf(request, tokenFormat))
      if (revoked === null) throw notFound()
      return { revoked }
    },
  )
}

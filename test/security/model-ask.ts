/** A command in a world: the request to send, and what it means there. */
import type { Body, By, Command, Target } from './model-commands.ts'
import { type ModelKey, ownedBy, type World } from './model-world.ts'

export interface Ask {
  readonly command: Command
  readonly method: string
  readonly path: string
  readonly token: string | null
  readonly json: Record<string, unknown> | undefined
  /** Null: an unknown token, or none. */
  readonly caller: ModelKey | null
  /** The caller's own key that the path names; null: none. */
  readonly target: ModelKey | null
  /** The same for the cursor; undefined: there is no cursor. */
  readonly after: ModelKey | null | undefined
}

/** Well formed, but never minted. */
const unknownToken = 'lk_00000000000000000000000000000000000000'

export function askOf(world: World, command: Command, nowS: number): Ask {
  const caller = callerOf(world, command.by)
  const token = caller?.token ?? (command.by === 'none' ? null : unknownToken)
  const user = caller?.owner ?? 0
  const base = { command, caller, token, json: undefined, target: null, after: undefined }
  switch (command.does) {
    case 'use':
      return { ...base, method: 'GET', path: '/v1/verify' }
    case 'create':
      return { ...base, method: 'POST', path: '/v1/keys', json: jsonOf(command.body, nowS) }
    case 'list': {
      const { limit, status, after, unknown } = command.query
      const found = after === undefined ? undefined : resolve(world, user, after)
      const query = [
        ...(limit === undefined ? [] : [`limit=${limit}`]),
        ...(status === undefined ? [] : [`status=${status}`]),
        ...(found === undefined ? [] : [`starting_after=${found.id}`]),
        ...(unknown === undefined ? [] : [`${unknown}=1`]),
      ]
      const path = query.length === 0 ? '/v1/keys' : `/v1/keys?${query.join('&')}`
      return { ...base, method: 'GET', path, after: found?.key }
    }
    default: {
      const { id, key } = resolve(world, user, command.target)
      const json = command.does === 'patch' ? jsonOf(command.body, nowS) : undefined
      const method = { get: 'GET', patch: 'PATCH', delete: 'DELETE' }[command.does]
      return { ...base, method, path: `/v1/keys/${id}`, json, target: key }
    }
  }
}

function callerOf(world: World, by: By): ModelKey | null {
  if (by === 'unknown' || by === 'none') return null
  if ('root' in by) return ownedBy(world, by.root)[0]!
  return world.keys[by.key % world.keys.length]!
}

function resolve(world: World, user: number, target: Target): { id: string; key: ModelKey | null } {
  const [root, ...others] = ownedBy(world, user)
  const pick = (keys: ModelKey[], index: number) => keys[index % keys.length]!
  const own = (key: ModelKey) => ({ id: key.id, key })
  if (target === 'root') return own(root!)
  if ('own' in target) return own(pick(others, target.own))
  if ('absent' in target) return { id: target.absent, key: null }
  if ('stranger' in target) return { id: pick(ownedBy(world, 1 - user), target.stranger).id, key: null }
  return { id: pick(others, target.mistyped).id.replace('apk_', 'aud_'), key: null }
}

function jsonOf({ expires_in, unknown, ...members }: Body, nowS: number): Record<string, unknown> {
  return {
    ...members,
    ...(expires_in !== undefined && { expires_at: expires_in === null ? null : nowS + expires_in }),
    ...(unknown !== undefined && { [unknown]: 1 }),
  }
}

/** How an instance counts and reaches its servers, as probes and operators see it. */
import { Type } from '@sinclair/typebox'

/** Why a shared counter does not count. A label of a metric, so there are only these. */
export const outageCauses = [
  'wrong_password',
  'no_permission',
  'certificate',
  'tls',
  'unknown_host',
  'refused',
  'unreachable',
  'disconnected',
  'timeout',
  'loading',
  'read_only',
  'out_of_memory',
  'cluster_down',
  'other',
] as const
export type OutageCause = (typeof outageCauses)[number]

export type CountingMode = 'shared' | 'local' | 'memory'
export const CountingMode = Type.Unsafe<CountingMode>({
  type: 'string',
  enum: ['shared', 'local', 'memory'],
  description:
    'How the instance counts: in Redis, on its own because a Redis server is down, or without Redis.',
  examples: ['shared'],
})

export type PostgresState = 'ok' | 'down'
export const PostgresState = Type.Unsafe<PostgresState>({
  type: 'string',
  enum: ['ok', 'down'],
  description: 'Whether the last look-up of a key and the last report of the instance succeeded.',
  examples: ['ok'],
})

export const OutageCause = Type.Unsafe<OutageCause>({
  type: 'string',
  enum: outageCauses,
  description: 'Why a Redis server is not counting. Only if `redis` is `local`.',
  examples: ['refused'],
})

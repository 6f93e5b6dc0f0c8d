/** How an instance counts and reaches its servers, as probes and operators see it. */
import type { Static } from '@sinclair/typebox'
import { Enum } from './enum.ts'

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

export const CountingMode = Enum(['shared', 'local', 'memory'], {
  description:
    'How the instance counts: in Redis, on its own because a Redis server is down, or without Redis.',
  examples: ['shared'],
})
export type CountingMode = Static<typeof CountingMode>

export const PostgresState = Enum(['ok', 'down'], {
  description: 'Whether the last look-up of a key and the last report of the instance succeeded.',
  examples: ['ok'],
})
export type PostgresState = Static<typeof PostgresState>

export const OutageCause = Enum(outageCauses, {
  description: 'Why a Redis server is not counting. Only if `redis` is `local`.',
  examples: ['refused'],
})

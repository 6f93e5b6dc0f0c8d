/** What the probes of the ops listener say. */
import { Type } from '@sinclair/typebox'
import { Enum } from './enum.ts'
import { CountingMode, OutageCause, PostgresState } from './health.ts'

export const Alive = Type.Object({ status: Type.Literal('ok') }, { $id: 'Alive' })

export const Readiness = Type.Object(
  {
    status: Enum(['starting', 'ready', 'draining']),
    redis: CountingMode,
    redis_cause: Type.Optional(OutageCause),
    postgres: PostgresState,
  },
  {
    $id: 'Readiness',
    examples: [{ status: 'ready', redis: 'local', redis_cause: 'refused', postgres: 'ok' }],
  },
)

export const PrometheusText = Type.String({
  description: 'The text format of Prometheus.',
  examples: ['latchkey_redis_degraded 0'],
})

/** The running instances, as operators see them. */
import { Type } from '@sinclair/typebox'
import { CountingMode, PostgresState } from './health.ts'

const Seconds = (description: string) => Type.Integer({ description, examples: [1795323180] })

export const InstanceList = Type.Object(
  {
    complete: Type.Boolean({
      description: 'Whether Postgres answered. If not, only the instance that was asked is here.',
      examples: [true],
    }),
    instances: Type.Array(
      Type.Object(
        {
          id: Type.String({ examples: ['ins_0mwrd2g2s00000ea31nqggsiwl'] }),
          version: Type.String({ examples: ['0.1.0'] }),
          started_at: Seconds('Unix seconds.'),
          seen_at: Seconds('When it last reported itself, Unix seconds.'),
          silent_s: Type.Integer({
            description: 'Seconds since then, by the clock of Postgres, as the other times are.',
            examples: [0],
          }),
          alive: Type.Boolean({
            description: 'Whether it reported itself in the last 5 s.',
            examples: [true],
          }),
          redis: CountingMode,
          postgres: PostgresState,
        },
        { additionalProperties: false },
      ),
    ),
  },
  { $id: 'InstanceList', additionalProperties: false },
)

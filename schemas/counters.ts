/** What operators read from the counters: the busiest keys of a minute, and the counts of one key. */
import { type Static, Type } from '@sinclair/typebox'
import { Enum } from './enum.ts'
import { type OutageCause, outageCauses } from './health.ts'
import { Limit, OneOf } from './list.ts'

export const CountersQuery = Type.Object(
  {
    minute: Type.Optional(OneOf(['current', 'last'])),
    sort: Type.Optional(OneOf(['used', 'share'])),
    limit: Type.Optional(Limit),
  },
  { $id: 'CountersQuery', additionalProperties: false },
)

const Source = Enum(['redis', 'local', 'memory'], {
  description:
    'redis: all instances. local: at least one Redis server does not count or answer, and the counts are what this instance knows. memory: there is no Redis.',
})

const textOrNull = (example: string) =>
  Type.Unsafe<string | null>({ type: ['string', 'null'], examples: [example] })
const integerOrNull = (description: string, example: number) =>
  Type.Unsafe<number | null>({ type: ['integer', 'null'], description, examples: [example] })

const counted = {
  used: Type.Integer({
    description: 'Requests in the minute, including those beyond the limit.',
    examples: [1012],
  }),
  limit: integerOrNull('Allowed requests per minute.', 1000),
  limited: integerOrNull(
    'Requests beyond the present limit. After a change of the limit, not how many were refused.',
    12,
  ),
}

export const Counters = Type.Object(
  {
    minute: Type.Integer({ description: 'When the minute began, Unix seconds.', examples: [1795323180] }),
    resets_at: Type.Integer({ description: 'When it ends, Unix seconds.', examples: [1795323240] }),
    as_of: Type.Integer({
      description: 'No count is older than this, if `complete`. Unix seconds.',
      examples: [1795323202],
    }),
    source: Source,
    complete: Type.Boolean({
      description: 'Whether all counters of the minute have been read.',
      examples: [true],
    }),
    scanned: Type.Integer({ description: 'Counters read so far.', examples: [5120] }),
    fault: Type.Unsafe<OutageCause | null>({
      type: ['string', 'null'],
      enum: [...outageCauses, null],
      description: 'Why a Redis server was not read, as in `latchkey_redis_degraded_cause`.',
      examples: [null],
    }),
    lost: Type.Boolean({
      description:
        'Whether this instance has noticed that requests of the minute are missing: Redis has lost counts, or was down for this instance or another, or a process that counted in memory was killed. Counts are then lower bounds.',
      examples: [false],
    }),
    named: Type.Boolean({
      description: 'Whether Postgres answered. If not, keys have only an id and a count, sorted by use.',
      examples: [true],
    }),
    keys: Type.Array(
      Type.Object(
        {
          id: Type.String({ examples: ['apk_0mwrd2g2s00000ea31nqggsiwl'] }),
          name: textOrNull('nightly export'),
          key_prefix: textOrNull('lk_6losLXU'),
          user_id: textOrNull('usr_0mwrd2g2o00000ea31nqggsiwl'),
          user_name: textOrNull('Ada'),
          ...counted,
        },
        { additionalProperties: false },
      ),
    ),
  },
  { $id: 'Counters', additionalProperties: false },
)
export type Counters = Static<typeof Counters>

const MinuteOfKey = Type.Object(
  { minute: Counters.properties.minute, ...counted, lost: Counters.properties.lost },
  { additionalProperties: false },
)

/** Of one key, in this minute and the last. */
export const KeyCounters = Type.Object(
  { source: Source, current: MinuteOfKey, last: MinuteOfKey },
  { additionalProperties: false },
)
export type KeyCounters = Static<typeof KeyCounters>

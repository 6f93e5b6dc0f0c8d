/** How often a key was used, over time: the same for its owner and for operators. */
import { type Static, Type } from '@sinclair/typebox'
import { usageSteps } from './bounds.ts'
import { Enum } from './enum.ts'
import { KeyId } from './key.ts'
import { OneOf, UnixSeconds } from './list.ts'

export const UsageQuery = Type.Object(
  {
    since: Type.Optional(
      UnixSeconds('Unix seconds. Default: 60 minutes, 48 hours or 30 days before `until`.'),
    ),
    until: Type.Optional(UnixSeconds('Unix seconds: only steps that begin before. Default: now.')),
    step: Type.Optional(OneOf(usageSteps, 'The length of a step. Default: minute.')),
  },
  { $id: 'UsageQuery', additionalProperties: false },
)
export type UsageQuery = Static<typeof UsageQuery>

export const UsagePoint = Type.Object(
  {
    start: Type.Integer({ description: 'Unix seconds at which the step begins.', examples: [1795322700] }),
    requests: Type.Integer({
      description: 'Requests with this key, those over its limit included.',
      examples: [64],
    }),
    limited: Type.Integer({
      description: 'Those of them that were over the limit of their minute.',
      examples: [4],
    }),
  },
  { additionalProperties: false },
)
export type UsagePoint = Static<typeof UsagePoint>

export const Usage = Type.Object(
  {
    object: Type.Literal('usage'),
    key_id: KeyId,
    step: Enum(usageSteps),
    since: Type.Integer({
      description: 'Unix seconds at which the first step begins.',
      examples: [1795319160],
    }),
    until: Type.Integer({ description: 'Unix seconds at which the last step ends.', examples: [1795322760] }),
    data: Type.Array(UsagePoint, { description: 'Oldest first. Steps without requests are left out.' }),
    incomplete: Type.Array(Type.Integer({ examples: [1795320000] }), {
      description:
        'The starts of the steps whose numbers may be too low: some requests were not stored, or are no longer stored.',
    }),
  },
  { $id: 'Usage', additionalProperties: false },
)
export type Usage = Static<typeof Usage>

/** What a gateway learns about an admitted request (forward authentication). */
import { type Static, Type } from '@sinclair/typebox'
import { KeyId, Moment, UserId } from './key.ts'

export const Verified = Type.Object(
  {
    key_id: KeyId,
    user_id: UserId,
    rate_limit_rpm: Type.Integer({ examples: [60] }),
    expires_at: Moment('Unix seconds, or null.'),
  },
  { $id: 'Verified', additionalProperties: false },
)
export type Verified = Static<typeof Verified>

/** What a gateway learns about an admitted request (forward authentication). */
import { type Static, Type } from '@sinclair/typebox'

export const Verified = Type.Object(
  {
    key_id: Type.String(),
    user_id: Type.String(),
    rate_limit_rpm: Type.Integer(),
    expires_at: Type.Unsafe<number | null>({
      type: ['integer', 'null'],
      description: 'Unix seconds, or null.',
    }),
  },
  { $id: 'Verified', additionalProperties: false },
)
export type Verified = Static<typeof Verified>

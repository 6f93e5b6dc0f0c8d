/** Leaked keys, as POST /admin/keys/scan finds them. */
import { type Static, Type } from '@sinclair/typebox'
import { operatorKeyStates } from './bounds.ts'
import { Enum } from './enum.ts'
import { KeyId, UserId } from './key.ts'

export const scanTextMax = 1_048_576

export const ScanBody = Type.Object(
  {
    text: Type.String({
      maxLength: scanTextMax,
      examples: ['API_KEY=lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8'],
      description: 'Anything that may contain keys: a file, a log, a diff.',
      suggestion: `Send at most ${scanTextMax} characters; \`latchkey keys scan\` takes files of any size.`,
    }),
    revoke: Type.Optional(
      Type.Boolean({
        description: 'Whether to revoke the keys found.',
        suggestion: 'Send true or false, or nothing to only look.',
      }),
    ),
  },
  {
    $id: 'ScanBody',
    additionalProperties: false,
    suggestion: 'Send a JSON object with at least `text`.',
  },
)

const LeakedKey = Type.Object(
  {
    id: KeyId,
    key_prefix: Type.String({ description: 'The first characters of the key.', examples: ['lk_6losLXU'] }),
    user_id: UserId,
    state: Enum(operatorKeyStates, {
      description: 'After the scan. A key that is `active` still works.',
    }),
    revoked: Type.Boolean({ description: 'Whether this scan revoked it.' }),
  },
  { additionalProperties: false },
)
export type LeakedKey = Static<typeof LeakedKey>

export const ScanResult = Type.Object(
  {
    keys: Type.Array(LeakedKey, { description: 'Those of this service, each once.' }),
    unknown: Type.Integer({
      examples: [0],
      description: 'How many other tokens have the right shape and checksum: perhaps of another environment.',
    }),
  },
  { $id: 'ScanResult', additionalProperties: false },
)
export type ScanResult = Static<typeof ScanResult>

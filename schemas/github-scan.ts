/**
 * Leaked keys as GitHub's secret scanning reports them to a partner, and what it reads of the
 * answer. Both formats are GitHub's.
 */
import { Type } from '@sinclair/typebox'
import { Enum } from './enum.ts'

const textOrNull = (description: string, example: string) =>
  Type.Optional(Type.Unsafe<string | null>({ type: ['string', 'null'], description, examples: [example] }))

export const GithubScanBody = Type.Array(
  Type.Object(
    {
      token: Type.String({
        description: 'What the pattern matched.',
        examples: ['lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8'],
      }),
      type: Type.String({
        description: 'The name under which GitHub knows the pattern.',
        examples: ['latchkey_api_key'],
      }),
      url: textOrNull(
        'Where it was found. May be empty.',
        'https://github.com/octocat/hello/blob/main/config.env',
      ),
      source: textOrNull('What it was found in.', 'content'),
    },
    // GitHub may add some.
    { additionalProperties: true, suggestion: 'Send the matches as GitHub does.' },
  ),
  { $id: 'GithubScanBody', suggestion: 'Send an array of matches as GitHub does.' },
)

export const GithubScanResult = Type.Array(
  Type.Object(
    {
      token_hash: Type.String({
        description: 'The SHA-256 of the token, in hexadecimal.',
        examples: ['3f7b2a0c5d1e4f6890abcdef1234567890abcdef1234567890abcdef12345678'],
      }),
      token_type: Type.String({ description: 'The `type` of the match.', examples: ['latchkey_api_key'] }),
      label: Enum(['true_positive', 'false_positive'], {
        description: 'Whether the token is a key of this service, in whatever state.',
      }),
    },
    { additionalProperties: false },
  ),
  { $id: 'GithubScanResult', description: 'One for each match, in the same order.' },
)

/** The envelope of every error (docs/api.md, Errors): it carries one row of the table. */
import { Type } from '@sinclair/typebox'
import { Enum } from './enum.ts'
import { errorTable } from './error-table.ts'

export const ErrorEnvelope = Type.Object(
  {
    error: Type.Object(
      {
        type: Enum([...new Set(Object.values(errorTable).map(({ type }) => type))], {
          description: 'The family of the error.',
        }),
        code: Enum(Object.keys(errorTable), { description: 'The exact error, for programs.' }),
        message: Type.String({ description: 'What happened, for a person.' }),
        param: Type.String({
          description: 'The field that the error is about, as a dotted path; "" if there is none.',
        }),
        docs_url: Type.String({ format: 'uri', description: 'A page about this code.' }),
        request_id: Type.String({ description: 'The same as the x-request-id header.' }),
        suggestion: Type.String({ description: 'What to do about it, for a person.' }),
      },
      { additionalProperties: false },
    ),
  },
  { $id: 'ErrorEnvelope', additionalProperties: false },
)

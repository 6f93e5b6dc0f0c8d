/** How an operator begins a session of the dashboard. */
import { Type } from '@sinclair/typebox'

export const LoginBody = Type.Object(
  {
    token: Type.String({
      minLength: 1,
      maxLength: 4096,
      description: 'One of the tokens in OPS_TOKEN.',
      suggestion: 'Send one of the tokens in OPS_TOKEN, without its name.',
    }),
  },
  { $id: 'LoginBody', additionalProperties: false, suggestion: 'Send a JSON object with `token`.' },
)

/**
 * Turns Ajv's errors into ours. The suggestion comes from the schema's own `suggestion` annotation.
 * (`published` is for the API document: what the text of a query parameter stands for.)
 */
import type { FastifyError } from 'fastify'
import { expiresAtEndS } from '../schemas/bounds.ts'
import { ApiError } from './api-error.ts'
import { shownMember } from './shown-text.ts'

/**
 * Fastify's `ajv` option. Nothing is converted or dropped (Fastify's defaults do both), and each
 * error carries the schema it is about.
 */
export const ajv = {
  customOptions: {
    coerceTypes: false,
    removeAdditional: false,
    useDefaults: false,
    allErrors: false,
    verbose: true,
    allowUnionTypes: true,
    keywords: ['suggestion', 'published'],
  },
}

interface Finding {
  instancePath: string
  keyword: string
  message?: string
  params: Record<string, unknown>
  parentSchema?: { suggestion?: string; properties?: Record<string, { suggestion?: string }> }
  data?: unknown
}

/** Too late for Unix seconds, but early enough as Unix milliseconds. */
const looksLikeMilliseconds = (value: unknown) =>
  typeof value === 'number' && value >= 1e11 && value < expiresAtEndS * 1000

export function fromValidation(error: FastifyError, redact = (text: string) => text): ApiError {
  const finding = error.validation![0] as unknown as Finding
  const path = finding.instancePath.slice(1).replaceAll('/', '.')
  const suggestion = finding.parentSchema?.suggestion
  switch (finding.keyword) {
    case 'required': {
      const member = String(finding.params.missingProperty)
      const memberSuggestion = finding.parentSchema?.properties?.[member]?.suggestion
      return new ApiError('missing_parameter', {
        param: join(path, member),
        message: `\`${member}\` is required.`,
        suggestion: memberSuggestion ?? suggestion ?? `Send \`${member}\`.`,
      })
    }
    case 'minProperties':
      return new ApiError('missing_parameter', {
        param: path,
        message: 'The request does not change anything.',
        suggestion,
      })
    case 'additionalProperties': {
      const member = shownMember(String(finding.params.additionalProperty), redact)
      const known = Object.keys(finding.parentSchema?.properties ?? {})
      return new ApiError('unknown_parameter', {
        param: join(path, member),
        message: `\`${member}\` is not a parameter of this operation.`,
        suggestion:
          known.length === 0
            ? 'Remove it.'
            : `Remove it, or use one of ${known.map((name) => `\`${name}\``).join(', ')}.`,
      })
    }
  }
  const what = path === '' ? `The ${error.validationContext ?? 'request'}` : `\`${path}\``
  if (path === 'expires_at' && looksLikeMilliseconds(finding.data)) {
    const seconds = Math.floor(Number(finding.data) / 1000)
    return new ApiError('invalid_parameter', {
      param: path,
      message: '`expires_at` is too far in the future.',
      suggestion:
        seconds * 1000 > Date.now()
          ? `This looks like milliseconds. Send Unix seconds, for example ${seconds}.`
          : 'This looks like milliseconds, of a time in the past. Send a time in the future in Unix seconds.',
    })
  }
  return new ApiError('invalid_parameter', {
    param: path,
    message: `${what} ${reason(finding, error.validationContext === 'querystring')}.`,
    // There is no `param` to correct.
    suggestion:
      suggestion ??
      (path === '' && finding.keyword === 'type' ? `Send a JSON ${finding.params.type}.` : undefined),
  })
}

const join = (path: string, member: string) => (path === '' ? member : `${path}.${member}`)

/** Ajv's messages are for schema authors. These cover the errors that our schemas can produce. */
function reason({ keyword, params, message, data }: Finding, inQuery: boolean): string {
  switch (keyword) {
    case 'type':
      if (inQuery && Array.isArray(data)) return 'must not be given more than once'
      return `must be of type ${[params.type].flat().join(' or ')}`
    case 'enum':
      return `must be one of ${(params.allowedValues as string[]).join(', ')}`
    case 'pattern':
      return 'has a format that is not allowed'
    case 'minLength':
    case 'maxLength':
      return `must have ${keyword === 'minLength' ? 'at least' : 'at most'} ${params.limit} character${params.limit === 1 ? '' : 's'}`
    default:
      return message ?? 'is not allowed'
  }
}

/** Takes an answer into the world if it is one that was possible, else says how it differs. */
import type { Ask } from './model-ask.ts'
import type { ModelAnswer } from './model-client.ts'
import { differenceOf } from './model-match.ts'
import { type Expected, expected } from './model-oracle.ts'
import { type Span, wantedAnswer } from './model-wanted.ts'
import { newModelKey, type World } from './model-world.ts'

/** The servers' clocks against ours, milliseconds: a machine has one, a virtual machine on it another. */
const clockSlackMs = 100

/**
 * The clock moves while a request is under way, and nobody saw when it was counted and when decided: each pair of seconds in
 * between is tried. As a rule that is one second, sometimes two; only within those may an expiry or a minute fall either way.
 */
export function judge(world: World, ask: Ask, answer: ModelAnswer): Expected {
  const span = {
    fromS: Math.floor((answer.sentMs - clockSlackMs) / 1000),
    toS: Math.floor((answer.receivedMs + clockSlackMs) / 1000),
  }
  const differences = new Set<string>()
  for (let countedS = span.fromS; countedS <= span.toS; countedS++) {
    for (let decidedS = countedS; decidedS <= span.toS; decidedS++) {
      const times = { countedS, decidedS }
      const outcome = expected(world, ask, times)
      const { status, body, headers } = wantedAnswer(world, ask, outcome, times, span, answer)
      const given = { status: answer.status, body: answer.body, headers: watched(answer) }
      const difference =
        differenceOf({ status, headers, body }, given, 'answer') ??
        leakIn(answer, 'created' in outcome) ??
        unlikeOthers(world, outcome, answer)
      if (difference === null) {
        take(world, ask, answer, outcome, span)
        return outcome
      }
      differences.add(difference)
    }
  }
  throw new Error([...differences].join('; or, a second later: '))
}

/** Those of the connection and of the message itself say nothing about keys. */
const unwatched = ['date', 'connection', 'keep-alive', 'content-length']
const watched = ({ headers }: ModelAnswer) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !unwatched.includes(name)))

function leakIn({ text, rawHeaders }: ModelAnswer, created: boolean): string | null {
  const secrets = `${rawHeaders.join('\n')}\n${text}`.match(/lk_[0-9A-Za-z]{38}|"plain_key":/g) ?? []
  return secrets.length === (created ? 2 : 0) ? null : `the secret is told: ${text}`
}

/** A 401 and a 404 are the same whatever led to them; so are the other errors whose words name no value. */
function unlikeOthers(
  { uniform }: World,
  outcome: Expected,
  { text, body, rawHeaders }: ModelAnswer,
): string | null {
  if (!('error' in outcome) || outcome.error.endsWith('_parameter')) return null
  const what = `${outcome.error} ${outcome.param}`
  const differing = /^(date|x-request-id|x-ratelimit-.*|retry-after)$/i
  const headers = rawHeaders.filter((_, i) => i % 2 === 0 || !differing.test(rawHeaders[i - 1]!))
  const masked = `${headers.join('\n')}\n\n${text.replace(body.error.request_id, 'req_…')}`
  const known = uniform.get(what)
  uniform.set(what, known ?? masked)
  return known === undefined || known === masked ? null : `not as before: ${masked} instead of ${known}`
}

function take(
  world: World,
  { caller, command }: Ask,
  { body }: ModelAnswer,
  outcome: Expected,
  span: Span,
): void {
  const counted = outcome.rated !== null || 'tooLate' in outcome
  if (caller !== null && counted) caller.lastRequestS = span.toS
  if (caller !== null && outcome.rated !== null) {
    const { reset } = outcome.rated
    caller.counts.set(reset, (caller.counts.get(reset) ?? 0) + 1)
    if (!('error' in outcome && outcome.error === 'rate_limit_exceeded')) caller.uses.set(command.on, span)
  }
  if ('created' in outcome) {
    const { id, plain_key: token, created_at: createdAt } = body
    world.keys.push(newModelKey({ ...outcome.created, owner: caller!.owner, id, token, createdAt }))
  } else if ('key' in outcome) {
    Object.assign(outcome.key, outcome.changes, { revokedAt: body.revoked_at })
  }
}

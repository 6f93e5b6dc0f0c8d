/** Takes a response into the world if it is a possible one; otherwise says how it differs. */
import type { Ask } from './model-ask.ts'
import { type Expected, expected, type Times } from './model-oracle.ts'
import { differenceOf, type Span, wantedAnswer } from './model-wanted.ts'
import { newModelKey, statusOf, type World } from './model-world.ts'
import type { WireAnswer } from './wire.ts'

export interface ModelAnswer extends WireAnswer {
  /** Before the first byte was sent and after the last came, Unix milliseconds. */
  readonly sentMs: number
  readonly receivedMs: number
}

/** The servers' clocks against ours, milliseconds: a virtual machine may have one of its own. */
const clockSlackMs = 100

/**
 * The clock moves while a request is under way, and nothing shows when it was counted, checked and
 * decided. So all seconds in between are tried. As a rule that is one second, sometimes two; only
 * within those may an expiry or a minute fall either way.
 */
export function judge(world: World, ask: Ask, answer: ModelAnswer): Expected {
  const fromS = Math.floor((answer.sentMs - clockSlackMs) / 1000)
  const toS = Math.floor((answer.receivedMs + clockSlackMs) / 1000)
  const differences = new Set<string>()
  for (const times of momentsBetween(fromS, toS)) {
    const outcome = expected(world, ask, times)
    const wanted = wantedAnswer(world, ask, outcome, times, { fromS, toS }, answer)
    const given = { status: answer.status, headers: watched(answer), body: answer.body }
    const difference =
      differenceOf(wanted, given, 'response') ??
      leakIn(answer, 'created' in outcome) ??
      unlikeOthers(world, outcome, answer)
    if (difference === null) {
      take(world, ask, answer, outcome, { fromS, toS })
      return outcome
    }
    differences.add(difference)
  }
  throw new Error([...differences].join('; or, a second later: '))
}

function* momentsBetween(fromS: number, toS: number): Generator<Times> {
  for (let countedS = fromS; countedS <= toS; countedS++)
    for (let checkedS = countedS; checkedS <= toS; checkedS++)
      for (let decidedS = checkedS; decidedS <= toS; decidedS++) yield { countedS, checkedS, decidedS }
}

/** Headers of the connection and of the message itself say nothing about keys. */
const unwatched = ['date', 'connection', 'keep-alive', 'content-length']
const watched = ({ headers }: ModelAnswer) =>
  Object.fromEntries([...headers].filter(([name]) => !unwatched.includes(name)))

function leakIn({ raw }: ModelAnswer, created: boolean): string | null {
  const secrets = raw.match(/lk_[0-9A-Za-z]{38}|"plain_key":/g) ?? []
  return secrets.length === (created ? 2 : 0) ? null : `the secret is in it: ${raw}`
}

/**
 * A 401 and a 404 are the same whatever led to them. So are the other errors whose text names no
 * value.
 */
function unlikeOthers({ uniform }: World, outcome: Expected, { raw, body }: ModelAnswer): string | null {
  if (!('error' in outcome) || outcome.error.endsWith('_parameter')) return null
  const what = `${outcome.error} ${outcome.param}`
  const masked = raw
    .replace(/^(date|x-ratelimit-\w+|retry-after): .*$/gim, '$1: …')
    .replaceAll(body.error.request_id, 'req_…')
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
  if (caller !== null && statusOf(caller, span.fromS) === 'active') caller.lastRequestS = span.toS
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

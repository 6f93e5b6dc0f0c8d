// What is logged of failed requests: a flood of them becomes few lines.
import type { FastifyRequest } from 'fastify'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { ApiError, unavailable } from '../../plugins/api-error.ts'
import { RefusalBudgetSpent } from '../../src/guard/refusal-budget.ts'
import { createErrorLog } from '../../src/http/error-log.ts'

function begin(t: Test, level = 'info') {
  const lines: Record<string, unknown>[] = []
  const clock = { ms: 0 }
  const log = pino({ level }, { write: (line: string) => void lines.push(JSON.parse(line)) })
  t.intercept(performance, 'now', { value: () => clock.ms })
  return { lines, clock, logError: createErrorLog(log, () => ({})) }
}

t.test('503s get one line a second, which says how many were suppressed', async (t) => {
  const { lines, clock, logError } = begin(t)
  for (const ms of [0, 1, 2, 999, 1000, 1001, 2000]) {
    clock.ms = ms
    logError(unavailable(new Error('no answer')), null, `req_${ms}`)
  }
  t.match(lines, [
    { request_id: 'req_0', level: 40, status: 503, reason: 'no answer', suppressed: 0 },
    { request_id: 'req_1000', suppressed: 3 },
    { request_id: 'req_2000', suppressed: 1 },
  ])
  t.equal(lines.length, 3)
})

t.test('401s and 429s are logged at debug level only', async (t) => {
  for (const code of ['unauthorized', 'rate_limit_exceeded'] as const) {
    const usual = begin(t)
    usual.logError(new ApiError(code), null, 'req_1')
    t.same(usual.lines, [])
    const debugging = begin(t, 'debug')
    debugging.logError(new ApiError(code), null, 'req_1')
    t.match(debugging.lines, [{ request_id: 'req_1', code }])
  }
})

t.test('errors without a caller get one line a second for each status', async (t) => {
  const { lines, clock, logError } = begin(t)
  const stranger = { caller: null } as FastifyRequest
  for (const ms of [0, 1, 999, 1000]) {
    clock.ms = ms
    logError(new ApiError('bad_request'), null, `req_parser_${ms}`)
    logError(new ApiError('route_not_found'), stranger, `req_docs_${ms}`)
  }
  t.match(lines, [
    { request_id: 'req_parser_0', level: 30, status: 400, suppressed: 0 },
    { request_id: 'req_docs_0', level: 30, status: 404, suppressed: 0 },
    { request_id: 'req_parser_1000', suppressed: 2 },
    { request_id: 'req_docs_1000', suppressed: 2 },
  ])
  t.equal(lines.length, 4)
})

t.test('refusals over the budget do not suppress the line about a server that is down', async (t) => {
  const { lines, logError } = begin(t)
  for (let n = 0; n < 3; n++) logError(unavailable(new RefusalBudgetSpent('too many')), null, 'req_1')
  for (let n = 0; n < 3; n++) logError(unavailable(new Error('no answer')), null, 'req_2')
  t.match(lines, [
    { request_id: 'req_1', level: 40, reason: 'too many' },
    { request_id: 'req_2', level: 40, reason: 'no answer' },
  ])
  t.equal(lines.length, 2)
})

t.test('every error of a caller is logged, and every fault of ours with its cause', async (t) => {
  const { lines, logError } = begin(t)
  const request = { caller: { id: 'apk_1' } } as FastifyRequest
  for (let n = 0; n < 3; n++) logError(new ApiError('not_found'), request, `req_${n}`)
  for (let n = 0; n < 2; n++) {
    logError(new ApiError('internal_error', { cause: new Error('broken') }), null, 'req_9')
  }
  const ours = { level: 50, err: { message: 'broken' } }
  t.match(lines, [...new Array(3).fill({ level: 30, key_id: 'apk_1' }), ours, ours])
  t.equal(lines.length, 5)
})

t.test('of the cause of a fault, only type, message and stack are logged', async (t) => {
  const { lines, logError } = begin(t)
  const cause = Object.assign(new TypeError('broken'), { detail: 'secret', where: 'secret' })
  logError(new ApiError('internal_error', { cause }), null, 'req_1')
  t.strictSame(lines[0]!.err, { type: 'TypeError', message: 'broken', stack: cause.stack })
})

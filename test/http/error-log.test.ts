// The log of failed requests: everything once, and a flood of them in few lines.
import { pino } from 'pino'
import t from 'tap'
import { ApiError, unavailable } from '../../plugins/api-error.ts'
import { createErrorLog } from '../../src/http/error-log.ts'

function begin(level = 'info') {
  const lines: Record<string, unknown>[] = []
  const clock = { ms: 0 }
  const log = pino({ level }, { write: (line: string) => void lines.push(JSON.parse(line)) })
  return {
    lines,
    clock,
    logError: createErrorLog(
      log,
      () => ({}),
      () => clock.ms,
    ),
  }
}

t.test('of 503s there is one line a second, which says how many were not told', async (t) => {
  const { lines, clock, logError } = begin()
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

t.test('401s and 429s are told at debug level only', async (t) => {
  for (const code of ['unauthorized', 'rate_limit_exceeded'] as const) {
    const usual = begin()
    usual.logError(new ApiError(code), null, 'req_1')
    t.same(usual.lines, [])
    const debugging = begin('debug')
    debugging.logError(new ApiError(code), null, 'req_1')
    t.match(debugging.lines, [{ request_id: 'req_1', code }])
  }
})

t.test('other errors are told one by one, a fault of ours with what is underneath', async (t) => {
  const { lines, logError } = begin()
  for (let n = 0; n < 3; n++) logError(new ApiError('not_found'), null, `req_${n}`)
  logError(new ApiError('internal_error', { cause: new Error('broken') }), null, 'req_9')
  t.match(lines, [{ level: 30 }, { level: 30 }, { level: 30 }, { level: 50, err: { message: 'broken' } }])
  t.equal(lines.length, 4)
})

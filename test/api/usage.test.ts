// GET /v1/keys/{id}/usage and its twin for operators: the owner and nobody else sees how often a key was used.
import t from 'tap'
import { type Answer, makeCaller, makeKey } from '../instance.ts'
import { startAdmin } from '../ops/admin.ts'
import { expectError, expectRated } from './expect-error.ts'
import { inOneMinute, resetOf } from './one-minute.ts'

const { instance, admin } = await startAdmin(t)
const usage = (token: string, id: string, query = '') =>
  instance.ask('GET', `/v1/keys/${id}/usage${query}`, { token })

t.test(
  'the minute under way is there, with what was over the limit and with the request itself',
  async (t) => {
    const { answers, id } = await inOneMinute(async () => {
      const { id, token } = await makeCaller(instance, { rateLimitRpm: 4 })
      const other = await makeCaller(instance)
      const sent = await Promise.all(
        Array.from({ length: 5 }, () => instance.ask('GET', '/v1/verify', { token })),
      )
      const own = await usage(other.token, other.id)
      const answers: Answer[] = [...sent, await usage(token, id), own]
      return { answers, id }
    })
    t.equal(answers.at(-2)!.status, 429)
    const start = resetOf(answers.at(-1)!) - 60
    const own = answers.at(-1)!
    t.equal(own.status, 200)
    expectRated(t, own)
    t.match(own.body, {
      object: 'usage',
      step: 'minute',
      since: start - 59 * 60,
      until: start + 60,
      data: [{ start, requests: 1, limited: 0 }],
      incomplete: [],
    })
    for (const step of ['minute', 'hour', 'day'] as const) {
      const { status, body } = await admin('GET', `keys/${id}/usage?step=${step}`)
      t.equal(status, 200)
      t.equal(body.key_id, id)
      t.match(body.data, [{ requests: 6, limited: 2 }], step)
    }
  },
)

t.test('another key of the same user can be asked about; anything else is the same 404', async (t) => {
  const caller = await makeCaller(instance)
  const second = await makeKey(instance, { userId: caller.userId })
  const stranger = await makeCaller(instance)
  t.match(await usage(caller.token, second.id), { status: 200, body: { key_id: second.id, data: [] } })
  const withoutRequest = ({ body, status }: Answer) => ({ status, error: { ...body.error, request_id: '' } })
  const absent = withoutRequest(await usage(caller.token, 'apk_1'))
  for (const id of [stranger.id, caller.userId, `${caller.id}0`, "'%20or%20''='", '%zz']) {
    const answer = await usage(caller.token, id, '?since=0')
    expectError(t, answer, 'not_found')
    t.strictSame(withoutRequest(answer), absent, id)
  }
  expectError(t, await admin('GET', 'keys/apk_1/usage'), 'not_found')
})

t.test('a query that cannot be answered is a 400 that says what to send', async (t) => {
  const { id, token } = await makeCaller(instance)
  const refused: [query: string, param: string, code?: 'unknown_parameter'][] = [
    ['step=week', 'step'],
    ['step=minute&step=hour', 'step'],
    ['since=yesterday', 'since'],
    ['since=-1', 'since'],
    ['since=1795356330000', 'since'],
    ['since=2000000000&until=1000000000', 'since'],
    ['since=0', 'since'],
    ['until=0', 'until'],
    ['until=1.5', 'until'],
    ['from=0', 'from', 'unknown_parameter'],
  ]
  for (const [query, param, code = 'invalid_parameter'] of refused) {
    for (const answer of [
      await usage(token, id, `?${query}`),
      await admin('GET', `keys/${id}/usage?${query}`),
    ]) {
      expectError(t, answer, code, param)
      if (code === 'invalid_parameter') t.match(answer.body.error.suggestion, /^Send /)
    }
  }
})

// The limit of a key is exact in each minute, whoever asks where, and whatever is answered (spec section 8).
import t from 'tap'
import { type Answer, type Instance, makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { inOneMinute, resetOf } from './one-minute.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const other = await startInstance(t, services)

const verify = (token: string, { ask }: Instance = instance) => ask('GET', '/v1/verify', { token })
const remainingOf = ({ headers }: Answer) => Number(headers.get('x-ratelimit-remaining'))

async function inTurn(count: number, ask: () => Promise<Answer>): Promise<Answer[]> {
  const answers = []
  for (let asked = 0; asked < count; asked++) answers.push(await ask())
  return answers
}

t.test('a limit of 3 admits 3 requests in a minute and counts them down', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance, { rateLimitRpm: 3 })
    return { answers: await inTurn(5, () => verify(token)) }
  })
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200, 429, 429],
  )
  t.same(answers.map(remainingOf), [2, 1, 0, 0, 0])
  t.same(new Set(answers.map(({ headers }) => headers.get('x-ratelimit-limit'))), new Set(['3']))
})

t.test('the reset is the end of this minute in Unix seconds, the same for the whole of it', async (t) => {
  const { answers, beforeMs } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance)
    return { beforeMs: Date.now(), answers: await inTurn(5, () => verify(token)) }
  })
  const reset = resetOf(answers[0]!)
  t.equal(reset % 60, 0)
  t.ok(reset > beforeMs / 1000 - 1 && reset <= beforeMs / 1000 + 61, `${reset} ends the minute of now`)
  t.same(new Set(answers.map(resetOf)), new Set([reset]))
})

t.test('the request over the limit is 429 and says when to come back', async (t) => {
  const { answers, beforeMs, afterMs } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance, { rateLimitRpm: 1 })
    await verify(token)
    const beforeMs = Date.now()
    return { beforeMs, answers: [await verify(token)], afterMs: Date.now() }
  })
  const [answer] = answers as [Answer]
  expectError(t, answer, 'rate_limit_exceeded')
  expectRated(t, answer)
  const retryAfterS = Number(answer.headers.get('retry-after'))
  t.ok(afterMs / 1000 + retryAfterS >= resetOf(answer), 'whoever waits that long is past the reset')
  t.ok(beforeMs / 1000 + retryAfterS < resetOf(answer) + 1.1, 'and not for much longer')
  t.ok(retryAfterS >= 1 && retryAfterS <= 60)
})

t.test('an admitted request has no Retry-After', async (t) => {
  const { token } = await makeCaller(instance)
  t.equal((await verify(token)).headers.get('retry-after'), null)
})

t.test('a limit raised or lowered within the minute keeps the count', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const admin = await makeCaller(instance)
    const { id, token } = await makeKey(instance, { userId: admin.userId, rateLimitRpm: 3 })
    const limit = (rate_limit_rpm: number) =>
      instance.ask('PATCH', `/v1/keys/${id}`, { token: admin.token, json: { rate_limit_rpm } })
    const answers = await inTurn(4, () => verify(token))
    await limit(7)
    answers.push(...(await inTurn(2, () => verify(token))))
    await limit(2)
    answers.push(await verify(token))
    await limit(8)
    answers.push(...(await inTurn(2, () => verify(token))))
    return { answers }
  })
  t.same(
    answers.map((answer) => [answer.status, answer.headers.get('x-ratelimit-limit'), remainingOf(answer)]),
    [
      ...[
        [200, '3', 2],
        [200, '3', 1],
        [200, '3', 0],
        [429, '3', 0],
      ],
      ...[
        [200, '7', 2],
        [200, '7', 1],
      ],
      [429, '2', 0],
      ...[
        [200, '8', 0],
        [429, '8', 0],
      ],
    ],
  )
})

t.test('each key has a limit of its own', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const { token, userId } = await makeCaller(instance, { rateLimitRpm: 1 })
    const sibling = await makeKey(instance, { userId, rateLimitRpm: 2 })
    return {
      answers: [...(await inTurn(2, () => verify(token))), ...(await inTurn(3, () => verify(sibling.token)))],
    }
  })
  t.same(
    answers.map(({ status }) => status),
    [200, 429, 200, 200, 429],
  )
})

t.test(
  '100 requests at once at a limit of 50 admit exactly 50, each with a remaining of its own',
  async (t) => {
    const { answers } = await inOneMinute(async () => {
      const { token } = await makeCaller(instance, { rateLimitRpm: 50 })
      return { answers: await Promise.all(Array.from({ length: 100 }, () => verify(token))) }
    })
    const admitted = answers.filter(({ status }) => status === 200)
    const refused = answers.filter(({ status }) => status === 429)
    t.same([admitted.length, refused.length], [50, 50])
    t.same(
      admitted.map(remainingOf).sort((a, b) => a - b),
      Array.from({ length: 50 }, (_, i) => i),
    )
    t.ok(refused.every((answer) => remainingOf(answer) === 0))
  },
)

t.test('two instances share the count, in turn and at once', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance, { rateLimitRpm: 60 })
    const inTurn: Answer[] = []
    for (let i = 0; i < 10; i++) inTurn.push(await verify(token, i % 2 ? instance : other))
    const atOnce = Array.from({ length: 100 }, (_, i) => verify(token, i % 2 ? instance : other))
    return { answers: [...inTurn, ...(await Promise.all(atOnce))] }
  })
  t.same(answers.slice(0, 10).map(remainingOf), [59, 58, 57, 56, 55, 54, 53, 52, 51, 50])
  const admitted = answers.slice(10).filter(({ status }) => status === 200)
  t.same(
    admitted.map(remainingOf).sort((a, b) => a - b),
    Array.from({ length: 50 }, (_, i) => i),
  )
})

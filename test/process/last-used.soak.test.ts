// `last_used_at` is at most a second behind in Postgres.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { makeCaller } from '../instance.ts'
import { begin } from './last-used.ts'
import { until } from './until.ts'

const { instance, stored } = await begin(t)
const nowS = () => Math.floor(Date.now() / 1000)

t.test('a use is in Postgres within a second', async (t) => {
  for (const delayMs of [0, 170, 340]) {
    const caller = await makeCaller(instance)
    await pause(delayMs) // another phase of the regular writing
    const usedMs = performance.now()
    const usedS = nowS()
    await instance.ask('GET', '/v1/verify', { token: caller.token })
    const at = await until('the use is written', () => stored(caller.id), 3000)
    t.ok(performance.now() - usedMs <= 1000, 'in time')
    t.ok(at >= usedS && at <= nowS(), 'as the second of the use')
  }
})

t.test('under steady use Postgres is never more than a second behind', async (t) => {
  const { id, token } = await makeCaller(instance)
  const endMs = Date.now() + 3000
  let using = true
  const use = async () => {
    while (using) {
      await instance.ask('GET', '/v1/verify', { token })
      await pause(5)
    }
  }
  const used = use()
  await until('the first use is written', () => stored(id))
  let last = 0
  while (Date.now() < endMs) {
    // What was used a second before the question was asked must be in its answer.
    const dueS = Math.floor(Date.now() / 1000 - 1)
    const at = (await stored(id))!
    if (at < dueS) t.fail(`${dueS - at} s more than a second behind`)
    if (at < last) t.fail('it went back')
    last = at
    await pause(20)
  }
  using = false
  await used
  t.ok(last >= endMs / 1000 - 3, 'it moved')
})

// The model of Redis does what the scripts do in a real one: the same commands get the same replies
// and leave the same values, with the same expiry.
import { isDeepStrictEqual } from 'node:util'
import { Redis } from 'ioredis'
import t from 'tap'
import { loadScripts, versionKey } from '../../src/redis/scripts.ts'
import { minuteOf } from '../../src/rules/window.ts'
import { startPrivateRedis } from '../services/index.ts'
import { chanceOf } from './chance.ts'
import { createServer } from './redis-server.ts'

const commands = 2000
const names = ['apk_1', 'apk_2', 'apk_3', 'apk_4'].map(versionKey)
/** The real server's clock runs on until it sets an expiry. */
const expiryOffByMsMax = 1000

type Args = (string | number)[]
type Scripts = Redis & {
  latchkeyHitBuffer(...args: Args): Promise<Buffer>
  latchkeyRaise(...args: Args): Promise<number>
  latchkeyConfirm(...args: Args): Promise<null>
}

const server = await startPrivateRedis(t)

if (server)
  t.test(`${commands} random commands do the same in the model as in a real Redis`, async (t) => {
    const real = new Redis(server.url) as Scripts
    t.teardown(() => real.disconnect())
    loadScripts(real)
    const chance = chanceOf(20)
    let micros = 0
    let counted = 0
    const model = createServer(() => micros)

    const timeIn = (token: string) => {
      const [seconds, rest] = token.split('.') as [string, string]
      return Number(seconds) * 1e6 + Number(rest)
    }
    /** The real server goes first: the model's clock then shows what it said. */
    const steps: Record<string, () => Promise<[real: unknown, model: unknown]>> = {
      async hit() {
        const some = names.filter(() => chance.is(0.5))
        if (some.length === 0) return [null, null]
        counted++
        const hits = chance.is(0.5) ? [] : some.map(() => 1 + chance.whole(12))
        const lastMinute = minuteOf(Date.now()) + chance.oneOf([-1, 1, 1, 1])
        const args = [some.length, ...some, lastMinute, ...hits]
        const reply = await real.latchkeyHitBuffer(...args)
        micros = reply.readDoubleLE(0) * 1e6 + reply.readDoubleLE(8)
        return [reply, model.run('latchkeyHitBuffer', args)]
      },
      async raise() {
        const args = [chance.oneOf(names), 1 + chance.whole(40), 60 + chance.whole(540)]
        const reply = await real.latchkeyRaise(...args)
        micros = timeIn((await real.get(args[0] as string))!.split('?')[1]!)
        return [reply, model.run('latchkeyRaise', args)]
      },
      async confirm() {
        const some = names.filter(() => chance.is(0.5))
        if (some.length === 0) return [null, null]
        const args: Args = [some.length, ...some, 60 + chance.whole(540)]
        for (const name of some)
          args.push(chance.is(0.8) ? ((await real.get(name)) ?? '') : '0?1.1', 1 + chance.whole(40))
        return [await real.latchkeyConfirm(...args), model.run('latchkeyConfirm', args)]
      },
      async expireSooner() {
        const [name] = [...model.data.keys()].filter(() => chance.is(0.2))
        if (name === undefined) return [null, null]
        await real.expire(name, 30)
        model.data.get(name)!.expiresMs = micros / 1000 + 30_000
        return [null, null]
      },
      async lose() {
        if (chance.is(0.9)) return [null, null]
        await real.flushdb()
        model.data.clear()
        return [null, null]
      },
    }

    for (let n = 0; n < commands; n++) {
      const [what, step] = chance.oneOf(Object.entries(steps))
      const [wanted, found] = await step()
      const seen: unknown[] = [wanted]
      const modelled: unknown[] = [found]
      const reading = real.pipeline().keys('*')
      for (const name of model.data.keys()) reading.get(name).pttl(name)
      const [stored, ...values] = (await reading.exec())!.map(([, reply]) => reply)
      seen.push((stored as string[]).sort())
      modelled.push([...model.data.keys()].sort())
      for (const [i, [name, entry]] of [...model.data].entries()) {
        const [text, ttlMs] = [values[2 * i], values[2 * i + 1] as number]
        seen.push([name, text, true])
        const modelTtlMs = entry.expiresMs - micros / 1000
        modelled.push([name, entry.text, Math.abs(modelTtlMs - ttlMs) < expiryOffByMsMax])
      }
      if (!isDeepStrictEqual(modelled, seen))
        return void t.strictSame(modelled, seen, `command ${n}: ${what}`)
    }
    t.ok(counted > commands / 10)
  })

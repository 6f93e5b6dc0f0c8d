// A change holds everywhere before it is answered: at once where it is confirmed, else after no copy is believed any more.
import t from 'tap'
import { createPublish } from '../../src/guard/publish.ts'
import type { Counter } from '../../src/stores.ts'

const news = [{ keyId: 'apk_1', version: 2 }]

/** Publishes against a counter that confirms when told to; gives the tries and the milliseconds it took. */
async function published(
  confirms: (tryNumber: number) => boolean,
  maxStaleMs: number,
  mode: Counter['mode'] = 'shared',
) {
  const tries: unknown[] = []
  const publish = createPublish({
    maxStaleMs,
    counter: {
      mode,
      hit: () => true,
      outages: [],
      close: async () => {},
      async raise(versions) {
        tries.push(versions)
        return confirms(tries.length)
      },
    },
  })
  const begunMs = performance.now()
  await publish(news)
  return { tries, ms: performance.now() - begunMs }
}

/** A test that waited this long would not end. */
const forEverMs = 2 ** 31 - 1000

t.test('a change that is confirmed is answered at once', async (t) => {
  const { tries } = await published(() => true, forEverMs)
  t.strictSame(tries, [news])
})

t.test('a change that is never confirmed is answered when no instance believes an older copy', async (t) => {
  const { tries, ms } = await published(() => false, 600)
  t.ok(ms >= 600, `not before: ${ms} ms`)
  t.ok(tries.length > 1, 'tries went on meanwhile')
  t.ok(tries.every((versions) => versions === news))
})

t.test('a confirmation that comes meanwhile ends the wait', async (t) => {
  const { tries } = await published((n) => n === 3, forEverMs)
  t.equal(tries.length, 3)
})

t.test('where nobody believes a copy there is next to nothing to wait for', async (t) => {
  const { ms } = await published(() => false, 0)
  // Far from the minute after which it stops trying.
  t.ok(ms < 30_000, `${ms} ms`)
})

t.test('a counter that can never confirm is asked once, and the answer waits all the same', async (t) => {
  const { tries, ms } = await published(() => false, 600, 'memory')
  t.equal(tries.length, 1)
  t.ok(ms >= 600, `not before: ${ms} ms`)
})

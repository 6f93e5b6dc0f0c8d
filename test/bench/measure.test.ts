import t from 'tap'
import type { Hit } from '../../bench/load/load.ts'
import { measure, type Subject } from '../../bench/measure.ts'
import type { Rig } from '../../bench/rig.ts'

const good: Hit = { requests: 1000, seconds: 2, failed: 0, notOk: 0, p50Ms: 1, p99Ms: 2 }

/** The servers' counters rise by the same amount with every reading. */
function fakeRig(hit: Hit) {
  const shots: number[] = []
  let readings = 0
  const rig = {
    load: {
      shoot: async ({ seconds }: { seconds: number }) => {
        shots.push(seconds)
        return hit
      },
    },
    redis: { usage: async () => ({ scriptCalls: 500 * ++readings, cpuUs: 2000 * readings }) },
    postgres: { cpuUs: () => null },
  }
  return { rig: rig as unknown as Rig, shots }
}

function subject(tokens: number): Subject {
  let asked = 0
  const usage = async () => ({ cpuUs: 20_000 * ++asked, rssBytes: 0, peakRssBytes: 0 })
  return {
    name: 'one',
    url: 'http://127.0.0.1:1',
    processes: [{ name: 'one', url: '', writesLater: false, usage, stop: async () => {} }],
    tokensFile: '/none',
    tokens: () => ({ first: 0, count: tokens }),
  }
}

t.test('a window reports what each request cost', async (t) => {
  const { rig, shots } = fakeRig(good)
  t.match(await measure(rig, subject(1), 1, 2), {
    requestsPerS: 500,
    cpuUs: 20,
    scriptCalls: 0.5,
    redisCpuUs: 2,
    postgresCpuUs: null,
  })
  t.same(shots, [2])
})

t.test('with many keys, load that fills the caches again comes before the window', async (t) => {
  const { rig, shots } = fakeRig(good)
  t.match(await measure(rig, subject(1000), 1, 2), { cpuUs: 20 })
  t.same(shots, [1, 2])
})

t.test('a window with one failed request is rejected', async (t) => {
  for (const bad of [{ notOk: 1 }, { failed: 1 }, { requests: 0 }]) {
    const { rig } = fakeRig({ ...good, ...bad })
    await t.rejects(measure(rig, subject(1), 1, 2), { message: /^one: of / })
  }
})

t.test('a window that used a key twice is rejected where each key counts once', async (t) => {
  const { rig, shots } = fakeRig(good)
  const scarce = { ...subject(1000), onlyOnce: true }
  await t.rejects(measure(rig, scarce, 1, 2), { message: 'one: 1000 tokens were too few' })
  t.same(shots, [2], 'and no load comes before it')
})

// What keeps the published figures honest: what is measured, what is compared, and how rounds
// become one figure.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import type { Hit, Shot } from '../../bench/load/load.ts'
import { steadyLoad } from '../../bench/load/steady.ts'
import { measure, type Sample, type Subject } from '../../bench/measure.ts'
import {
  operations,
  placeOf,
  sample as sampleOf,
  staying,
  usersAtOnce,
} from '../../bench/operations/kinds.ts'
import { pgbenchStatement } from '../../bench/operations/statements.ts'
import { readOptions } from '../../bench/options.ts'
import { cpuRatio, perRound } from '../../bench/ratios.ts'
import type { Rig } from '../../bench/rig.ts'
import { inLaunches, inRounds, type Result } from '../../bench/rounds.ts'
import { type Asked, assertSameAnswer } from '../../bench/same-answer.ts'
import { figures, readResults } from '../../bench/scaling.ts'
import { processTreeCpuUs } from '../../bench/servers/process-tree-cpu.ts'
import { estimate, quantile } from '../../bench/statistics.ts'

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
    settle: async () => {},
  }
  return { rig: rig as unknown as Rig, shots }
}

function subject(tokens: number): Subject {
  let readings = 0
  const usage = async () => ({ cpuUs: 20_000 * ++readings, rssBytes: 0, peakRssBytes: 0 })
  return {
    name: 'one',
    url: 'http://127.0.0.1:1',
    processes: [{ name: 'one', url: '', opsUrl: null, usage, stop: async () => {} }],
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

t.test('the load before a window of another rate is full load', async (t) => {
  const [full, steady] = [fakeRig(good), fakeRig(good)]
  await measure(full.rig, { ...subject(1000), load: steady.rig.load }, 1, 2)
  t.same(full.shots, [1])
  t.same(steady.shots, [2])
})

/** Who is measured, warm-up included. */
function recordingRig(rounds: number) {
  const order: string[] = []
  const { rig } = fakeRig(good)
  const shoot = async ({ url }: Shot) => {
    order.push(new URL(url).hostname)
    return good
  }
  const rest = { rounds, seconds: 1, say: () => {}, stopCandidates: async () => {} }
  return { rig: { ...rig, ...rest, load: { name: '', shoot } }, order }
}

const three = () => ['a', 'b', 'c'].map((name) => ({ ...subject(1), name, url: `http://${name}` }))

t.test('every subject waits for all others before each of its windows', async (t) => {
  const { rig, order } = recordingRig(2)
  await inRounds(rig, three())
  t.equal(order.join(''), 'abcabcabc')
})

t.test('every second launch reverses the order, and results stay in place', async (t) => {
  const { rig, order } = recordingRig(2)
  const results = await inLaunches(rig, async () => three())
  t.equal(order.join(''), 'abcabccbacba')
  t.same(
    results.map(({ name }) => name),
    ['a', 'b', 'c'],
  )
  t.match(results, [{ launches: 2 }, { launches: 2 }, { launches: 2 }])
})

t.test('a window counts later work, but not connections that open or close', async (t) => {
  const { rig } = fakeRig(good)
  let cpuUs = 0
  const one = subject(1)
  one.processes[0]!.usage = async () => ({ cpuUs, rssBytes: 0, peakRssBytes: 0 })
  const settle = async () => {
    cpuUs += 1_000
  }
  const shoot = async ({ onOpen, beforeClose }: Shot) => {
    cpuUs += 500_000
    await onOpen?.()
    cpuUs += 20_000
    await beforeClose?.()
    cpuUs += 500_000
    return good
  }
  t.match(await measure({ ...rig, settle }, { ...one, load: { name: '', shoot } }, 1, 2), { cpuUs: 21 })
})

t.test('a steady load reports when its connections are open, and again before they close', async (t) => {
  let requests = 0
  const server = createServer((_request, response) => {
    requests++
    response.setHeader('content-length', 2).end('ok')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const found: [connections: number, requests: number][] = []
  const look = async () => {
    found.push([await promisify(server.getConnections.bind(server))(), requests])
  }
  const tokensFile = join(t.testdir({ tokens: 'lk_x\n' }), 'tokens')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const shot = { url, tokensFile, first: 0, count: 1, connections: 256, seconds: 1 }
  const hit = await steadyLoad(100).shoot({ ...shot, onOpen: look, beforeClose: look })
  t.match(hit, { requests: 100, failed: 0, notOk: 0 })
  t.same(found, [
    [256, 1],
    [256, 101],
  ])
})

t.test('a window with one failed request is rejected', async (t) => {
  for (const bad of [{ notOk: 1 }, { failed: 1 }, { requests: 0 }]) {
    const { rig } = fakeRig({ ...good, ...bad })
    await t.rejects(measure(rig, subject(1), 1, 2), { message: /^one: of / })
  }
})

t.test('one failed request of the load before a window is enough', async (t) => {
  const { rig } = fakeRig(good)
  const [before, window] = [{ ...good, notOk: 1 }, good]
  const load = { name: '', shoot: async ({ seconds }: Shot) => (seconds === 2 ? window : before) }
  await t.rejects(measure({ ...rig, load }, subject(1000), 1, 2), {
    message: /^one: of 1000 requests, 1 got/,
  })
})

t.test('a window that used a key twice is rejected where each key counts once', async (t) => {
  const { rig, shots } = fakeRig(good)
  const onlyOnce = { ...subject(1000), onlyOnce: true }
  await t.rejects(measure(rig, onlyOnce, 1, 2), { message: 'one: 1000 tokens were too few' })
  t.same(shots, [2], 'and no load comes before it')
})

const sample = (cpuUs: number): Sample => ({
  requestsPerS: 1,
  cpuUs,
  p50Ms: 1,
  p99Ms: 1,
  scriptCalls: 1,
  redisCpuUs: 1,
  postgresCpuUs: null,
})

const result = (name: string, cpuUs: number[]): Result => ({
  name,
  median: sample(quantile(cpuUs, 0.5)),
  lowerQuartile: sample(quantile(cpuUs, 0.25)),
  upperQuartile: sample(quantile(cpuUs, 0.75)),
  launches: 1,
  samples: cpuUs.map(sample),
})

t.test('a quantile lies between its two neighbours', async (t) => {
  t.equal(quantile([4, 1, 3, 2], 0.5), 2.5)
  t.equal(quantile([5, 1, 3, 2, 4], 0.25), 2)
  t.equal(quantile([7], 0.25), 7)
})

t.test('a machine that slows down between rounds does not change a ratio', async (t) => {
  const results = [result('ours', [10, 40, 20, 30]), result('theirs', [20, 80, 40, 60])]
  t.match(cpuRatio(results, 'theirs', 'ours'), {
    what: 'theirs / ours',
    perRound: { median: 2, low: 2, high: 2 },
    bestQuarters: 2,
  })
})

t.test('figures of several results are combined round by round', async (t) => {
  const results = [result('a', [1, 2, 3]), result('b', [10, 20, 30])]
  t.equal(perRound(results, 'cpuUs', ['a', 'b'], (a, b) => b - a).median, 18)
  t.throws(() => perRound(results, 'cpuUs', ['c'], (c) => c), { message: 'no result of c' })
})

t.test('the interval surrounds the median and ignores a single outlier', async (t) => {
  const values = [1, 1.01, 0.99, 1.02, 0.98, 1, 1.01, 0.99, 1, 1.02, 0.98, 1, 1.01, 0.99, 50]
  const { median, low, high } = estimate(values)
  t.equal(median, 1)
  t.ok(low <= median && median <= high)
  t.ok(low >= 0.98 && high <= 1.02, `${low}–${high}`)
  t.same(estimate(values), { median, low, high }, 'the same each time')
})

t.test('rounds of one launch that resemble each other do not narrow the interval', async (t) => {
  const perLaunch = [0.8, 0.9, 1, 1.1, 1.2].flatMap((ratio) => [ratio, ratio, ratio])
  t.same(estimate(perLaunch, 5), { median: 1, low: 0.8, high: 1.2 })
  const [ours, theirs] = [result('ours', perLaunch), result('theirs', Array(15).fill(1))]
  t.match(cpuRatio([{ ...ours, launches: 5 }, theirs], 'ours', 'theirs'), {
    perRound: { low: 0.8, high: 1.2 },
  })
})

async function answering(t: Test, name: string, body: string, headers = {}): Promise<Asked> {
  const server = createServer((_request, response) => response.writeHead(200, headers).end(body))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return { name, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token: 'lk_x' }
}

t.test('only answers with the same headers and as many bytes are compared', async (t) => {
  const one = await answering(t, 'one', 'xy', { 'x-one': '1' })
  t.equal((await assertSameAnswer([one, await answering(t, 'same', 'zz', { 'x-one': '2' })])).size, 0)
  const different = [
    await answering(t, 'bare', 'xy'),
    await answering(t, 'longer', 'xyz', { 'x-one': '1' }),
    { ...(await answering(t, 'older and shorter', 'x')), otherHeaders: true },
  ]
  for (const other of different) {
    await t.rejects(assertSameAnswer([one, other]), { message: new RegExp(`^${other.name} answers `) })
  }
})

t.test('an older Latchkey may send other headers, which are named', async (t) => {
  const one = await answering(t, 'one', 'xy', { 'x-one': '1' })
  const older = { ...(await answering(t, 'older', 'xy', { 'x-two': '2' })), otherHeaders: true }
  t.equal(
    (await assertSameAnswer([one, older])).get('older'),
    'Its answer differs: it lacks x-one and also has x-two.',
  )
})

t.test('a comparison with an older version never overwrites the published results', async (t) => {
  const known = { benchmarks: ['hot-key', 'growth'], tools: [], comparisons: ['hot-key'] }
  const read = (...args: string[]) => readOptions(args, known)
  const other = t.testdir({ dist: { src: { 'cli.js': '' } } })
  const before = join(other, 'dist/src/cli.js')
  t.match(read('--before', other, '--out', '/y'), { names: ['hot-key'], before, out: '/y' })
  t.throws(() => read('--before', '/x', '--out', '/y'), { message: /cli[.]js is missing; run npm ci/ })
  t.throws(() => read('--before', '/x'), { message: /^--before needs --out/ })
  t.throws(() => read('growth', '--before', '/x', '--out', '/y'), {
    message: /^--before is for hot-key only/,
  })
})

t.test('a benchmark named twice runs once, and scaling writes nowhere but to its page', async (t) => {
  const read = (...args: string[]) =>
    readOptions(args, { benchmarks: ['hot-key'], tools: ['scaling'], comparisons: [] })
  t.same(read('hot-key', 'hot-key').names, ['hot-key'])
  t.throws(() => read('scaling', '--out', '/tmp/x'), { message: /takes no options$/ })
  t.throws(() => read('scaling', '--rounds', '3'), { message: /takes no options$/ })
  t.throws(() => read('--round', '3'), {
    message: /^Unknown option '--round'; see npm run bench -- --help$/,
  })
})

t.test(
  'no published request of Latchkey at full load costs Redis more than the page plans with',
  async (t) => {
    const results = await readResults()
    const mostUs = Number(/^\| r₃ \|.* ([\d.]+) µs/m.exec(figures(results).join('\n'))?.[1])
    const roundingUs = 0.005
    for (const [name, { tables }] of Object.entries(results))
      for (const { results } of tables)
        for (const { name: row, median } of results)
          if (row.includes('latchkey'))
            t.ok(median.redisCpuUs <= mostUs + roundingUs, `${name}, ${row}: ${median.redisCpuUs} µs`)
  },
)

t.test('no key is revoked twice, over HTTP or by pgbench, nor by a statement that is recorded', async (t) => {
  const users = 2 * usersAtOnce
  const { http, pgbench } = operations.find(({ name }) => name === 'revoke')!
  const keys = [http, pgbench].flatMap((span) =>
    Array.from({ length: users * span.count }, (_, n) => placeOf(n, span).key),
  )
  t.equal(new Set([...keys, sampleOf.key]).size, keys.length + 1)
  const stay = Array.from({ length: users * staying.count }, (_, n) => placeOf(n, staying).key)
  const revoked = new Set(keys)
  t.notOk(
    stay.some((key) => revoked.has(key)),
    'and none that stays',
  )
})

t.test('pgbench sends the statement of the service, and its own ids', async (t) => {
  const text = "select to_char(now(), 'HH24:MI') from f(a => $1, b => $2::text::json, c => $3)"
  const parameters = ['apk_7', '{"id":"apk_7","text":null}', null]
  const script = pgbenchStatement({ text, parameters }, new Map([['apk_7', "'apk_' || :n"]]))
  t.equal(
    script,
    "select to_char(now(), 'HH24' || ':' || 'MI') from f(a => ('apk_' || :n), " +
      `b => (E'{"id"\\x3a"' || 'apk_' || :n || E'","text"\\x3anull}')::text::json, c => null);\n`,
  )
})

const skip = processTreeCpuUs(process.pid) === null && 'there is no /proc here'

t.test('the CPU time of a child that ends during a reading is not lost', { skip }, async (t) => {
  const busyChild = 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'
  const root = spawn('sh', ['-c', `for n in 1 2 3 4 5 6; do sh -c '${busyChild}'; done`], { stdio: 'ignore' })
  let highestUs = 0
  let lostUs = 0
  while (root.exitCode === null) {
    const sumUs = processTreeCpuUs(root.pid!)!
    highestUs = Math.max(highestUs, sumUs)
    lostUs = Math.max(lostUs, highestUs - sumUs)
    await setImmediate()
  }
  // The time of ended children, user and system, is in whole ticks of 10 ms.
  const roundingUs = 20_000
  t.ok(highestUs > 6 * roundingUs, `each child took more than rounding may lose: together ${highestUs} µs`)
  t.ok(lostUs <= roundingUs, `${lostUs} µs were lost`)
})

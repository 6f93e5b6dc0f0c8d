// `npm run bench` as a whole: what it leaves when it ends, is stopped, or fails.
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import t from 'tap'
import { fillCounters } from '../../bench/benchmarks/viewer.ts'
import type { Outcome } from '../../bench/outcome.ts'
import type { Rig } from '../../bench/rig.ts'
import { runAll } from '../../bench/run-all.ts'
import { startRedis } from '../../bench/servers/redis.ts'
import { aFolder } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { findRedisServer } from '../services/binaries.ts'
import { startProgram } from './program.ts'

const skip = (await findRedisServer()) === null && 'there is no redis-server on this machine'
const env = { PATH: process.env.PATH }
const interrupted = /\nbench: interrupted\n$/

t.test('a closed terminal stops it, and no result is written', { skip }, async (t) => {
  const out = join(await aFolder(t), 'results')
  const bench = await startProgram(t, ['run.js', 'hot-key', '--rounds', '1', '--out', out], env)
  await bench.printed(/warming up/)
  bench.signal('SIGHUP')
  await bench.endsWith(1, interrupted)
  t.strictSame(await readdir(out).catch(() => []), [])
})

t.test('a second Ctrl-C does not keep it from closing', { skip }, async (t) => {
  const bench = await startProgram(t, ['run.js', 'profile'], env)
  await bench.printed(/a database with 1 key/)
  bench.signal('SIGINT')
  await bench.printed(/Stopping/)
  bench.signal('SIGINT')
  await bench.endsWith(1, interrupted)
})

t.test('SIGTERM during the start leaves nothing', { skip }, async (t) => {
  const bench = await startProgram(t, ['run.js', 'profile'], env)
  await until('its folder is there', async () => (await bench.files()).length > 0)
  bench.signal('SIGTERM')
  await bench.endsWith(1, /bench: interrupted\n$/)
})

t.test('results that cannot be written are no reason to measure for hours', async (t) => {
  const file = join(await aFolder(t), 'file')
  await writeFile(file, '')
  const bench = await startProgram(t, ['run.js', 'profile', '--out', join(file, 'results')], env)
  await bench.endsWith(1, /^bench: ENOTDIR.*\n$/)
})

const outcome = (rounds: number): Outcome => {
  const sample = {
    requestsPerS: 1,
    cpuUs: 1,
    p50Ms: 1,
    p99Ms: 1,
    scriptCalls: 1,
    redisCpuUs: 1,
    postgresCpuUs: null,
  }
  const samples = Array.from({ length: rounds }, () => sample)
  const [lowerQuartile, upperQuartile, launches] = [sample, sample, 5]
  const result = { name: 'one', median: sample, lowerQuartile, upperQuartile, samples, launches }
  const table = { title: 'A table', about: '', results: [result], ratios: [] }
  return { name: 'first', title: 'The first', tables: [table], targets: [], notes: [] }
}

const fakeRig = () => {
  const [redis, postgres, load] = [{ version: '7' }, { version: '18' }, { name: 'wrk' }]
  return { redis, postgres, load, rounds: 7, seconds: 2, say: () => {} } as unknown as Rig
}

t.test('a result is written before the next benchmark, with the rounds it has', async (t) => {
  const out = await aFolder(t)
  const runs = {
    first: async () => outcome(10),
    second: async () => {
      throw new Error('the second fails')
    },
  }
  const { signal } = new AbortController()
  const all = { names: ['first', 'second'], runs, out, stopping: signal, print: () => {} }
  await t.rejects(runAll(fakeRig(), all), { message: 'the second fails' })
  t.match(await readFile(join(out, 'first.md'), 'utf8'), /^10 rounds, /m)
})

t.test('a benchmark that Ctrl-C has cut short writes nothing', async (t) => {
  const out = await aFolder(t)
  const stopping = new AbortController()
  const runs = {
    first: async () => {
      stopping.abort()
      return outcome(1)
    },
  }
  const all = { names: ['first'], runs, out, stopping: stopping.signal, print: () => {} }
  await t.rejects(runAll(fakeRig(), all), { name: 'AbortError' })
  t.strictSame(await readdir(out), [])
})

t.test('the counters of `viewer` are gone when the next benchmark begins', { skip }, async (t) => {
  const redis = await startRedis(await aFolder(t), undefined)
  t.teardown(() => redis.stop())
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  await client.set('of somebody else', '1')
  const remove = await fillCounters({ redis, say: () => {} }, 20_000)
  t.equal(await client.dbsize(), 20_001)
  await remove()
  t.strictSame(await client.keys('*'), ['of somebody else'])
})

// `npm run bench` when it is stopped: nothing may stay behind that disturbs the next measurement.
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
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

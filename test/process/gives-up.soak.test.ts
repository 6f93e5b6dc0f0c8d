// A start that finds no Postgres at the port has 30 seconds.
import t from 'tap'
import { startOddPort } from '../services/odd-ports.ts'
import { externalEnv, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

t.test('a start gives up after 30 seconds', async (t) => {
  const port = await startOddPort(t, 'accepts and closes')
  const service = await spawnLatchkey(t, externalEnv({ databaseUrl: port.url, redisUrl: null }), 'serve')
  await until('it has tried', () => port.accepted > 0)
  const startMs = performance.now()
  const { code, stderr } = await service.ended
  t.equal(code, 1)
  t.match(stderr, /^latchkey: the Postgres of DATABASE_URL: [^\n]+\n$/)
  const tookMs = performance.now() - startMs
  t.ok(tookMs > 25_000, `${Math.round(tookMs)} ms`)
  t.ok(port.accepted < 70, `${port.accepted} connections: two a second`)
})

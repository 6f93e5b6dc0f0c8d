// A DATABASE_URL that leads to something else than Postgres: a plain end in time, and few connections meanwhile.
import t from 'tap'
import { type Habit, startOddPort } from '../services/odd-ports.ts'
import { externalEnv, runLatchkey, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const told: [habit: Habit, why: RegExp][] = [
  ['speaks HTTP', /^latchkey: the Postgres of DATABASE_URL: what answers there is not Postgres\n$/],
  [
    'speaks first, as MySQL does',
    /^latchkey: the Postgres of DATABASE_URL: what answers there is not Postgres\n$/,
  ],
  [
    'accepts and closes',
    /^latchkey: the Postgres of DATABASE_URL: (the server closed the connection|cannot be reached \(ECONNRESET\))\n$/,
  ],
  ['accepts and says nothing', /^latchkey: the Postgres of DATABASE_URL: no answer in 5000 ms\n$/],
]

t.test('a command says what is wrong with the port', async (t) => {
  await Promise.all(
    told.map(async ([habit, why]) => {
      const port = await startOddPort(t, habit)
      const env = externalEnv({ databaseUrl: port.url, redisUrl: null })
      const { code, stdout, stderr } = await runLatchkey(t, env, 'migrate')
      t.strictSame([code, stdout, why.test(stderr) || stderr], [1, '', true], habit)
      t.ok(port.accepted <= 3, `${habit}: ${port.accepted} connections`)
    }),
  )
})

t.test('a start ends at once where what answers is not Postgres', async (t) => {
  const port = await startOddPort(t, 'speaks HTTP')
  const env = externalEnv({ databaseUrl: port.url, redisUrl: null })
  const { code, stderr } = await runLatchkey(t, env, 'serve')
  t.equal(code, 1)
  t.match(stderr, told[0]![1])
  t.ok(port.accepted <= 3)
})

for (const habit of ['accepts and closes', 'accepts and says nothing'] as const) {
  t.test(`a start waits at a port that ${habit}, and SIGTERM ends it within two seconds`, async (t) => {
    const port = await startOddPort(t, habit)
    const service = await spawnLatchkey(t, externalEnv({ databaseUrl: port.url, redisUrl: null }), 'serve')
    await until('it has tried', () => port.accepted >= (habit === 'accepts and closes' ? 4 : 1), 20_000)
    const startMs = performance.now()
    service.kill('SIGTERM')
    const { code, stderr } = await service.ended
    t.strictSame([code, stderr], [0, ''])
    const tookMs = performance.now() - startMs
    t.ok(tookMs < 2000, `${Math.round(tookMs)} ms`)
    t.ok(port.accepted <= 6, `${port.accepted} connections`)
  })
}

t.test('a start gives up after 30 seconds', async (t) => {
  const port = await startOddPort(t, 'accepts and closes')
  const service = await spawnLatchkey(t, externalEnv({ databaseUrl: port.url, redisUrl: null }), 'serve')
  await until('it has tried', () => port.accepted > 0, 20_000)
  const startMs = performance.now()
  const { code, stderr } = await service.ended
  t.equal(code, 1)
  t.match(stderr, told[2]![1])
  const tookMs = performance.now() - startMs
  t.ok(tookMs > 28_000 && tookMs < 33_000, `${Math.round(tookMs)} ms`)
  t.ok(port.accepted < 70, `${port.accepted} connections: two a second`)
})

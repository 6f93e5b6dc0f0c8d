// A DATABASE_URL that leads to something other than Postgres: it ends with a plain line, and opens
// few connections meanwhile.
import t, { type Test } from 'tap'
import { type Habit, startOddPort } from '../services/odd-ports.ts'
import { externalEnv, runLatchkey, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const line = (why: string) => new RegExp(`^latchkey: the Postgres of DATABASE_URL: ${why}\\n$`)
const lines = {
  'speaks HTTP': line('what answers there is not Postgres'),
  'accepts and closes': line('(the server closed the connection|cannot be reached \\(ECONNRESET\\))'),
  'accepts and says nothing': line('no answer in 5000 ms'),
  'refuses a parameter, as PgBouncer does': line(
    'unsupported startup parameter: statement_timeout; see "PgBouncer" in docs/operations\\.md',
  ),
}

async function atPort(t: Test, habit: Habit) {
  const port = await startOddPort(t, habit)
  return { port, env: externalEnv({ databaseUrl: port.url, redisUrl: null }) }
}

// Most of the time they wait.
t.jobs = 3

for (const [habit, why] of Object.entries(lines) as [keyof typeof lines, RegExp][]) {
  t.test(`a command says what is wrong with a port that ${habit}`, async (t) => {
    const { port, env } = await atPort(t, habit)
    const { code, stdout, stderr } = await runLatchkey(t, env, 'migrate')
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr, why)
    t.ok(port.accepted <= 3, `${port.accepted} connections`)
  })
}

for (const habit of ['speaks HTTP', 'refuses a parameter, as PgBouncer does'] as const) {
  t.test(`a start ends at once at a port that ${habit}`, async (t) => {
    const { port, env } = await atPort(t, habit)
    const { code, stdout, stderr } = await runLatchkey(t, env, 'serve')
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr, lines[habit])
    t.ok(port.accepted <= 3, `${port.accepted} connections`)
  })
}

for (const habit of ['accepts and closes', 'accepts and says nothing'] as const) {
  t.test(`a start waits at a port that ${habit}, until SIGTERM ends it`, async (t) => {
    const { port, env } = await atPort(t, habit)
    const service = await spawnLatchkey(t, env, 'serve')
    await until('it has tried', () => port.accepted > 0)
    const triedMs = performance.now()
    if (habit === 'accepts and closes') {
      await until('it has tried again', () => port.accepted >= 4)
      t.ok(performance.now() - triedMs > 750, 'twice a second')
    }
    const startMs = performance.now()
    service.kill('SIGTERM')
    const { code, stderr } = await service.ended
    t.strictSame([code, stderr], [0, ''])
    const tookMs = performance.now() - startMs
    t.ok(tookMs < 4000, `before the 5 s for an answer are over: ${Math.round(tookMs)} ms`)
    t.ok(port.accepted <= 8, `${port.accepted} connections`)
  })
}

t.test('of several hosts, each is said to be wrong, and waited for only while one may come', async (t) => {
  const other = await atPort(t, 'speaks HTTP')
  const notPostgres = new URL(other.port.url).port
  const run = async (ports: (number | string)[], command: string) => {
    const url = `postgres://several/x?host=127.0.0.1,127.0.0.1&port=${ports.join()}`
    return runLatchkey(t, { ...other.env, DATABASE_URL: url }, command)
  }
  t.match((await run([notPostgres, notPostgres], 'serve')).stderr, lines['speaks HTTP'])
  const both = 'host 1: cannot be reached (ECONNREFUSED); host 2: what answers there is not Postgres'
  const { stderr } = await run([1, notPostgres], 'migrate')
  t.equal(stderr, `latchkey: the Postgres of DATABASE_URL: ${both}\n`)
  t.match((await run([1, notPostgres], 'doctor')).stdout, `${both}\n        Check DATABASE_URL`)
})

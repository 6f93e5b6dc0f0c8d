// The whole environment is checked before anything starts. A fault names the variable and never
// shows its value.
import t from 'tap'
import { useServices } from '../services/index.ts'
import { externalEnv, runLatchkey } from './latchkey.ts'

/** Each with a value that no other text would contain. */
const bad: Record<string, string> = {
  HOST: 'hunter2 hunter2',
  PORT: 'hunter2',
  OPS_HOST: '/hunter2',
  OPS_PORT: '70000.hunter2',
  OPS_TOKEN: 'ada:hunter2',
  METRICS_TOKEN: 'hunter2',
  DATABASE_URL: 'mysql://ada:hunter2@db/latchkey',
  REDIS_URL: 'http://ada:hunter2@cache',
  HASH_SECRET: 'hunter2',
  BASE_URL: 'hunter2.example',
  LOG_LEVEL: 'hunter2',
  TRUST_PROXY: 'hunter2',
  KEY_PREFIX: 'hunter2_',
  KEY_CACHE_SECONDS: '-hunter2',
  MAX_KEYS_PER_USER: '1e3hunter2',
  DEFAULT_RATE_LIMIT_RPM: '0x1hunter2',
  REFUSALS_PER_ADDRESS_RPM: 'hunter2',
  AUDIT_RETENTION_DAYS: 'hunter2',
  USAGE_RETENTION_DAYS: 'hunter2',
}

// test/process/config.test.ts has each of them alone.
t.test('bad variables end the process with one line that names them and not their values', async (t) => {
  const good = externalEnv(await useServices(t))
  const { code, stdout, stderr } = await runLatchkey(t, { ...good, ...bad }, 'serve')
  t.equal(code, 1)
  t.equal(stdout, '')
  t.match(stderr, /^[^\n]+\n$/, 'one line')
  for (const name of Object.keys(bad)) t.match(stderr, new RegExp(`\\b${name}\\b must`), `${name} is named`)
  t.notMatch(stderr, /hunter2/)
})

t.test('a command is as strict as the service', async (t) => {
  const env = { ...externalEnv(await useServices(t)), HASH_SECRET: 'hunter2' }
  const { code, stderr } = await runLatchkey(t, env, 'users', 'list')
  t.equal(code, 1)
  t.match(stderr, /^[^\n]*HASH_SECRET[^\n]*\n$/)
  t.notMatch(stderr, /hunter2/)
})

t.test('a DATA_DIR that cannot be made ends the process with one line that names it', async (t) => {
  for (const DATA_DIR of ['/dev/null/x', '/proc/x', '/proc/x/y']) {
    const { code, stderr } = await runLatchkey(t, { DATA_DIR, PORT: '0' }, 'serve')
    t.equal(code, 1)
    t.match(stderr, /^[^\n]*DATA_DIR[^\n]*\n$/)
  }
})

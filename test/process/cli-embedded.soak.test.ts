// The command line without any server given: it starts the Postgres in DATA_DIR, or uses the running service's.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { embeddedEnv } from './embedded.ts'
import { everyCommand } from './every-command.ts'
import { runLatchkey, serveLatchkey } from './latchkey.ts'

t.test('on a Postgres of its own with no service running, --json is one JSON value', async (t) => {
  const env = await embeddedEnv(t)
  await everyCommand(t, (...words) => runLatchkey(t, env, ...words), null)
  t.notOk(existsSync(join(env.DATA_DIR, 'postgres', 'postmaster.pid')), 'no Postgres is left running')
})

t.test('on a Postgres of its own beside a running service, --json is one JSON value', async (t) => {
  const env = await embeddedEnv(t)
  const { url } = await serveLatchkey(t, env)
  await everyCommand(t, (...words) => runLatchkey(t, env, ...words), url)
})

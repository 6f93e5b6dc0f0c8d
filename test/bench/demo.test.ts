// The demo as a person sees it: started, asked, interrupted with Ctrl-C, and gone.
import { once } from 'node:events'
import { symlink } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ask } from '../process/ask.ts'
import { aFolder } from '../process/latchkey.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { until } from '../process/until.ts'
import { findRedisServer, onPath } from '../services/binaries.ts'
import { accepts } from '../services/ports.ts'
import { startProgram } from './program.ts'

const stopped = /\nStopped\.\n$/

const startDemo = (t: Test, env: Record<string, string | undefined>) => startProgram(t, ['demo/demo.js'], env)

/** Only root needs a program: the one that lets Postgres run as somebody else. */
async function pathWithoutRedis(t: Test): Promise<string> {
  const folder = await aFolder(t)
  const unshare = await onPath('unshare')
  if (unshare !== null) await symlink(unshare, join(folder, 'unshare'))
  return folder
}

for (const withRedis of [true, false]) {
  const title = withRedis
    ? 'three instances share the count, and Ctrl-C leaves nothing'
    : 'without a Redis, one instance counts in memory'
  const skip = withRedis && (await findRedisServer()) === null && 'there is no redis-server on this machine'
  t.test(title, { skip }, async (t) => {
    const PATH = withRedis ? process.env.PATH : await pathWithoutRedis(t)
    // Empty counts as unset.
    const demo = await startDemo(t, { PATH, REDIS_URL: '' })
    const url = await demo.printed(/Service +(http:\S+)/)
    const opsUrl = await demo.printed(/Metrics +(http:\S+)\/metrics/)
    const token = await demo.printed(/Bearer (lk_\w+)/)
    const databasePort = Number(await demo.printed(/DATABASE_URL='[^']*:(\d+)\/\w+'/))
    t.equal((await demo.printed(/(\d instances|one instance)/)) === '3 instances', withRedis)

    // Each without a connection to reuse, so that the next instance answers it.
    const headers = { connection: 'close' }
    const asked = async () => ask(`GET ${url}/v1/verify`, { token, headers })
    // An instance whose Redis answers late counts a request by itself, and in between the minute may
    // turn. Instances that do not share a count never get three in a row.
    await until('three requests in turn are counted one after another', async () => {
      const answers = [await asked(), await asked(), await asked()]
      const [first, second, third] = answers.map(({ headers }) =>
        Number(headers.get('x-ratelimit-remaining')),
      )
      const allServed = answers.every(({ status }) => status === 200)
      return allServed && second === first! - 1 && third === second - 1
    })
    await until('customers are served and strangers refused', async () => {
      const { value } = parsePrometheus((await ask(`GET ${opsUrl}/metrics`)).text)
      const refused = (reason: string) => value('latchkey_refusals_total', { reason })
      return (
        value('latchkey_requests_total', { status: '200' }) > 20 &&
        refused('unknown_key') &&
        refused('revoked')
      )
    })

    demo.interrupt()
    await demo.endsWith(0, stopped)
    t.notOk(await accepts(databasePort), 'its Postgres has stopped')
    t.notOk(await accepts(Number(new URL(url).port)))
  })
}

t.test('Ctrl-C during the start leaves nothing either', async (t) => {
  const demo = await startDemo(t, { PATH: process.env.PATH })
  await demo.printed(/Starting/)
  demo.interrupt()
  await demo.endsWith(0, stopped)
})

t.test('SIGTERM to npm, which passes it to its shell only, leaves nothing either', async (t) => {
  const env = { PATH: process.env.PATH, npm_lifecycle_event: 'demo' }
  const demo = await startProgram(t, ['demo/demo.js', '; true'], env, { shell: true })
  const url = await demo.printed(/Service +(http:\S+)/)
  demo.signal('SIGTERM')
  await until('it has stopped', async () => !(await accepts(Number(new URL(url).port))))
  await until('no file is left', async () => (await demo.files()).length === 0)
})

t.test('output that nobody reads any more stops it, as in `npm run demo | head`', async (t) => {
  const demo = await startDemo(t, { PATH: process.env.PATH })
  await demo.printed(/Starting/)
  demo.child.stdout.destroy()
  await demo.endsWith(0, /^Starting .*\n$/)
})

t.test('a Redis that never answers is given up', async (t) => {
  const silent = createServer(() => {}).listen(0, '127.0.0.1')
  await once(silent, 'listening')
  t.teardown(() => silent.close())
  const { port } = silent.address() as AddressInfo
  const demo = await startDemo(t, { PATH: process.env.PATH, REDIS_URL: `redis://127.0.0.1:${port}` })
  await demo.endsWith(1, /demo: Redis cannot be reached: no answer in 10 s\n$/)
})

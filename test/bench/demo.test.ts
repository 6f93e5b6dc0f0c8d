// The demo as a person sees it: started, asked, interrupted with Ctrl-C, and gone.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { ask } from '../process/ask.ts'
import { builtCli } from '../process/built.ts'
import { aFolder } from '../process/latchkey.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { until } from '../process/until.ts'
import { findRedisServer, onPath } from '../services/binaries.ts'
import { accepts } from '../services/ports.ts'

const program = join(dirname(await builtCli()), '../bench/demo/demo.js')

async function startDemo(t: Test, env: Record<string, string | undefined>) {
  const folder = await aFolder(t)
  // A process group of its own, as in a terminal: Ctrl-C reaches all of its processes.
  const child = spawn(process.execPath, [program], { detached: true, env: { ...env, TMPDIR: folder } })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk
    })
  const ended = once(child, 'close')
  t.teardown(() => {
    child.kill('SIGTERM')
    return ended
  })
  return {
    printed: (text: RegExp) =>
      until(`the demo prints ${text}`, () => {
        if (child.exitCode !== null) throw new Error(`the demo has ended: ${output}`)
        return text.exec(output)?.[1]
      }),
    async interrupt() {
      process.kill(-child.pid!, 'SIGINT')
      t.strictSame(await ended, [0, null], output)
      t.match(output, /\nStopped\.\n$/)
      t.strictSame(await readdir(folder), [], 'no file is left')
      t.throws(() => process.kill(-child.pid!, 0), { code: 'ESRCH' }, 'nor a process')
    },
  }
}

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

    await demo.interrupt()
    t.notOk(await accepts(databasePort), 'its Postgres has stopped')
    t.notOk(await accepts(Number(new URL(url).port)))
  })
}

t.test('Ctrl-C during the start leaves nothing either', async (t) => {
  const demo = await startDemo(t, { PATH: process.env.PATH })
  await demo.printed(/(Starting)/)
  await demo.interrupt()
})

/** latchkey serve: one instance, from its first line to its last. */
import { lookup } from 'node:dns/promises'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import closeWithGrace from 'close-with-grace'
import type { Config } from '../config.ts'
import { createOps } from '../ops/listener.ts'
import { createLog } from '../process/log.ts'
import { openService } from '../process/service.ts'
import type { Stores } from '../process/wiring.ts'
import { newId } from '../rules/id.ts'
import { newKey } from '../rules/new-key.ts'
import { version } from '../version.ts'
import { type Command, operator } from './command.ts'
import { printable } from './printable.ts'

/** A stop that takes longer is ended. */
const closeTimeoutMs = 25_000
const parentWatchMs = 250
const logFlushMs = 1000

export const serve: Command = {
  takes: [],
  async run(config) {
    const say = (line: string) => process.stdout.write(`${printable(line)}\n`)
    const log = createLog(config.logLevel)
    let draining = false
    let drainMs = 0
    const stopping = new AbortController()
    const closers: (() => Promise<unknown>)[] = []
    const close = async () => {
      for (const one of closers.splice(0)) await one()
    }

    closeWithGrace({ delay: closeTimeoutMs, logger: false }, async ({ err, signal }) => {
      draining = true
      // By Ctrl-C a person stops it, who is not a load balancer.
      if (signal === 'SIGTERM') drainMs = config.drainSeconds * 1000
      stopping.abort()
      if (err) log.fatal({ err }, 'unexpected fault: stopping')
      else log.info({ signal }, 'stopping')
      await close()
      log.info('stopped')
      // Whoever reads the log may have stopped reading.
      await Promise.race([new Promise((resolve) => log.flush(resolve)), sleep(logFlushMs)])
    })

    if (config.startedByNpm) stopWithParent()

    const opening = openService(config, log, {
      role: 'serve',
      signal: stopping.signal,
      onProgress: config.databaseUrl === null ? say : (line) => log.info(line),
    })
    // A stop that comes while it opens waits for it: it may have started a Postgres.
    closers.push(() =>
      opening.then(
        // Nobody has been sent to one that did not listen yet.
        (service) => service.close(service.app.server.listening ? drainMs : 0),
        () => {},
      ),
    )
    try {
      const service = await opening
      const { app, stores } = service
      if (draining) return undefined
      const ops = createOps({
        service,
        docsBase: app.docsBase,
        state: () => (draining ? 'draining' : app.server.listening ? 'ready' : 'starting'),
        tokens: config.opsTokens,
        metricsToken: config.metricsToken,
      })
      closers.push(() => ops.close())
      await listening(
        async () => ops.listen({ host: await oneAddress(config.opsHost), port: config.opsPort }),
        'OPS_PORT',
        config.opsPort,
      )
      if (draining) return undefined
      await listening(
        async () => app.listen({ host: await oneAddress(config.host), port: config.port }),
        'PORT',
        config.port,
      )

      const { port } = app.server.address() as AddressInfo
      const opsPort = (ops.server.address() as AddressInfo).port
      log.info(
        {
          version,
          host: config.host,
          port,
          ops_host: config.opsHost,
          ops_port: opsPort,
          counter: stores.counter.mode,
        },
        'listening',
      )
      if (stores.embedded) {
        await greet(config, stores, port, say)
        stores.embedded.exited.then((reason) => {
          if (!draining) log.error({ reason }, 'the embedded Postgres has ended; restart Latchkey')
        })
      }
    } catch (error) {
      // Stopped while it started: whoever stops it says how it ends.
      if (draining) return undefined
      await close()
      throw error
    }
    return undefined
  },
}

/** For a name with several addresses Fastify opens further servers, which our handlers of parser errors would not reach. */
const oneAddress = async (host: string) => (await lookup(host)).address

/** npm hands a signal to its shell only; without this the service would outlive `npm start`. */
function stopWithParent() {
  const parent = process.ppid
  const watch = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(watch)
    process.kill(process.pid, 'SIGTERM')
  }, parentWatchMs)
  watch.unref()
}

async function listening(listen: () => Promise<unknown>, name: string, port: number) {
  try {
    await listen()
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw new Error(code === 'EADDRINUSE' ? `port ${port} is in use; choose another with ${name}` : message)
  }
}

/** On an empty database of our own: a first user and key, told once, so that there is something to call with. */
async function greet(
  config: Config,
  { users, keys, hashSecret }: Stores,
  port: number,
  say: (line: string) => void,
) {
  if ((await users.list()).length > 0) return
  const user = await users.create({ id: newId('usr_'), name: 'first user' }, operator())
  const wanted = {
    userId: user.id,
    name: 'first key',
    rateLimitRpm: config.defaultRateLimitRpm,
    expiresAt: null,
  }
  const { token, key } = newKey(wanted, { tokenPrefix: config.tokenPrefix, hashSecret })
  await keys.create(key, operator())
  for (const line of [
    '',
    `Your first API key, shown only this once (it belongs to ${user.id}):`,
    '',
    `  ${token}`,
    '',
    'Try it:',
    '',
    `  curl -i http://localhost:${port}/v1/keys -H 'Authorization: Bearer ${token}'`,
    '',
  ])
    say(line)
}

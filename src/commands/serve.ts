/** latchkey serve: one instance, from its first line to its last. */
import type { AddressInfo } from 'node:net'
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import { responseDue } from '../../plugins/http-framing.ts'
import type { Config } from '../config.ts'
import { createDrain } from '../http/drain.ts'
import { readGithubKeys } from '../ops/github-keys.ts'
import { createOps } from '../ops/listener.ts'
import { isLoopback } from '../ops/request-origin.ts'
import { keepTicksFast } from '../process/fast-ticks.ts'
import { createLog, type Log } from '../process/log.ts'
import { openService, type Service } from '../process/service.ts'
import { setV8Options } from '../process/v8-options.ts'
import { newId } from '../rules/id.ts'
import { printable } from '../rules/printable.ts'
import { Unavailable } from '../stores.ts'
import { version } from '../version.ts'
import type { Stores } from '../wiring/stores.ts'
import { actor, print } from './command.ts'
import { addressesOf, listenOnAll } from './listen.ts'
import { stopOnSignal, stopWithParent } from './stop.ts'
import { announceListening, startWorkers, workerCount } from './workers.ts'

/** A signal to all processes of a terminal reaches this one within this time. */
const signalDelayMs = 50
/** Each takes a second where Postgres is slow. */
const firstKeyTries = 20

export async function serve(config: Config): Promise<undefined> {
  keepTicksFast()
  setV8Options()
  const workers = workerCount(config)
  const say = (line: string) => process.stdout.write(`${printable(line)}\n`)
  const log = await createLog(config.logLevel)
  let closeStarted: () => Promise<unknown> = async () => {}
  let closing: Promise<unknown> | undefined
  const close = async () => {
    closing ??= closeStarted()
    await closing
  }
  const stop = stopOnSignal(log, close)
  if (config.startedByNpm) stopWithParent(stop.signal)

  const [opsAddress, address] = await addressesOf(config)
  if (config.opsTokens.length === 0 && !isLoopback(opsAddress)) throw new Error(opsTokenMissing)

  if (config.githubScanningKeysFile !== null) await readGithubKeys(config.githubScanningKeysFile)

  if (workers > 1) return serveWith(workers)

  const opening = openService(config, log, {
    role: 'serve',
    signal: stop.signal,
    onProgress: config.databaseUrl === null ? say : (line) => log.info(line),
  })
  let closeOps = async () => {}
  // A stop during the start waits for the service to open: it may have started a Postgres.
  closeStarted = () =>
    opening.then(
      // No drain before it listens: no client knows of it yet.
      ({ app, close }) =>
        close({
          drainMs: stop.drains && app.server.listening ? config.drainSeconds * 1000 : 0,
          cutOff: stop.cutOff,
          closeOps: () => closeOps(),
        }),
      () => {},
    )
  try {
    const service = await opening
    const { app, stores } = service
    if (stop.signal.aborted) return undefined
    const ops = createOps({
      config,
      service,
      docsBase: app.docsBase,
      state: () => (closing ? 'draining' : app.server.listening ? 'ready' : 'starting'),
    })
    const drain = createDrain(ops.server, responseDue)
    stop.signal.addEventListener('abort', drain.start)
    closeOps = async () => {
      await drain.finish(stop.cutOff)
      await ops.close()
    }
    await listenOnAll([
      { prefix: 'OPS_', server: ops, host: opsAddress, port: config.opsPort, exclusive: true },
      { prefix: '', server: app, host: address, port: config.port, exclusive: false },
    ])

    announceListening()
    await announce({ config, service, ops, log, say })
    stores.embedded?.exited.then((reason) =>
      log.error({ reason }, 'the embedded Postgres has stopped; restart Latchkey'),
    )
  } catch (error) {
    // Ctrl-C also ends initdb, and that may become known before the signal.
    await pause(signalDelayMs)
    // On a busy machine the timer may fire before the event loop has looked for signals.
    await nextTurn()
    // Stopped during the start: the signal handler decides how the process ends.
    if (stop.signal.aborted) return undefined
    await close()
    throw error
  }
  return undefined

  async function serveWith(count: number): Promise<undefined> {
    const { started, close: closeWorkers } = startWorkers(count, config, log)
    closeStarted = () => closeWorkers(stop.drains ? 'SIGTERM' : 'SIGINT')
    if ((await started) || stop.signal.aborted) return undefined
    await close()
    // Its own line on stderr says why.
    process.exit(1)
  }
}

const opsTokenMissing =
  'OPS_TOKEN is required where OPS_HOST is not a loopback address: the ops listener has the admin API. Set OPS_TOKEN, or OPS_HOST=127.0.0.1'

interface Announcement {
  config: Config
  service: Service
  ops: FastifyInstance
  log: Log
  say: (line: string) => void
}

/** Says where it listens; with the embedded database, to a person too. */
async function announce({ config, service: { app, stores }, ops, log, say }: Announcement) {
  const { port } = app.server.address() as AddressInfo
  const opsPort = (ops.server.address() as AddressInfo).port
  const { host, opsHost } = config
  const addresses = { host, port, ops_host: opsHost, ops_port: opsPort }
  log.info({ version, ...addresses, counter: stores.counter.mode() }, 'listening')
  if (!stores.embedded) return
  await createFirstKey(config, stores, `http://${shownHost(host)}:${port}`)
  say(`Dashboard: http://${shownHost(opsHost)}:${opsPort}/`)
}

/** As people write it; an address that only others reach is not called localhost. */
function shownHost(host: string): string {
  if (/^(localhost|127\.0\.0\.1|0\.0\.0\.0|::1?)$/.test(host)) return 'localhost'
  return host.includes(':') ? `[${host}]` : host
}

const firstUser = 'first user'

/**
 * On an empty embedded database: creates a first user and key, and prints the key once, so there is
 * something to call with. If the start was ended between the two, the next one goes on.
 */
async function createFirstKey(config: Config, { users, keys, mintKey }: Stores, url: string) {
  const [user, another] = (await patiently(() => users.list({ limit: 2 })))!
  if (another !== undefined || (user && user.name !== firstUser)) return
  if (user && (await patiently(() => keys.list(user.id, { limit: 1 })))!.length > 0) return
  const userId =
    user?.id ??
    (await patiently(async () => {
      const id = newId('usr_')
      await users.create({ id, name: firstUser }, actor())
      return id
    }))
  const { token, key, ok } = await patiently(async () => {
    const rateLimitRpm = config.defaultRateLimitRpm
    const minted = mintKey({ userId, name: 'first key', rateLimitRpm, expiresAt: null })
    const { ok } = await keys.create(minted.key, actor())
    return { ...minted, ok }
  })
  // The user has been deleted.
  if (!ok) return
  const lines = [
    '',
    `Your first API key, shown only this once (it belongs to ${userId}):`,
    '',
    `  ${token}`,
    '',
    'Try it:',
    '',
    `  curl -i ${url}/v1/keys -H 'Authorization: Bearer ${token}'`,
    '',
  ]
  print({ json: null, lines, newKeyId: key.id }, {})
}

/** On a machine where `initdb` took half a minute, a first statement may exceed its time limit. */
async function patiently<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof Unavailable) || tries === firstKeyTries) throw error
    }
  }
}

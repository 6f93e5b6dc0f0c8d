/** latchkey serve: one instance, from its first line to its last. */
import { lookup } from 'node:dns/promises'
import type { AddressInfo } from 'node:net'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import closeWithGrace from 'close-with-grace'
import type { FastifyInstance } from 'fastify'
import { responseDue } from '../../plugins/http-framing.ts'
import type { Config } from '../config.ts'
import { createDrain } from '../http/drain.ts'
import { readGithubKeys } from '../ops/github-keys.ts'
import { createOps } from '../ops/listener.ts'
import { isLoopback } from '../ops/operator-auth.ts'
import { keepTicksFast } from '../process/fast-ticks.ts'
import { createLog, type Log } from '../process/log.ts'
import { openService, type Service } from '../process/service.ts'
import { setV8Options } from '../process/v8-options.ts'
import { newId } from '../rules/id.ts'
import { version } from '../version.ts'
import type { Stores } from '../wiring/stores.ts'
import { actor, print } from './command.ts'
import { printable } from './printable.ts'
import { announceListening, announceStop, startWorkers, workerCount } from './workers.ts'

/** A stop that takes longer is aborted. */
const closeTimeoutMs = 25_000
/**
 * Then what is still in flight is cut off. After the longest DRAIN_SECONDS this leaves 4 s for it,
 * and 6 s for what must be written: usage takes up to 5 s.
 */
const cutOffMs = 19_000
const parentWatchMs = 250
/** Within this time, a signal to all processes of a terminal is known here. */
const signalDelayMs = 50
const logFlushMs = 1000

export async function serve(config: Config): Promise<undefined> {
  keepTicksFast()
  setV8Options()
  const workers = workerCount(config)
  const say = (line: string) => process.stdout.write(`${printable(line)}\n`)
  const log = await createLog(config.logLevel)
  const closers: (() => Promise<unknown>)[] = []
  let isClosing = false
  const close = async () => {
    isClosing = true
    for (const one of closers.splice(0)) await one()
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
  // A stop during the start waits for it to open: it may have started a Postgres.
  closers.push(() =>
    opening.then(
      // No drain before it listens: no client knows of it yet.
      ({ app, close }) =>
        close({
          drainMs: stop.drains && app.server.listening ? config.drainSeconds * 1000 : 0,
          cutOff: stop.cutOff,
          closeOps: () => closeOps(),
        }),
      () => {},
    ),
  )
  try {
    const service = await opening
    const { app, stores } = service
    if (stop.signal.aborted) return undefined
    const ops = createOps({
      service,
      docsBase: app.docsBase,
      state: () => (isClosing ? 'draining' : app.server.listening ? 'ready' : 'starting'),
      tokens: config.opsTokens,
      metricsToken: config.metricsToken,
      githubKeysFile: config.githubScanningKeysFile,
      defaultRateLimitRpm: config.defaultRateLimitRpm,
      maxRateLimitRpm: config.maxRateLimitRpm,
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
    // Ctrl-C ends initdb too, which may be known before the signal.
    await sleep(signalDelayMs)
    // On a busy machine the time may be up before the event loop has looked for signals.
    await nextTurn()
    // Stopped during the start: the signal handler decides how the process ends.
    if (stop.signal.aborted) return undefined
    await close()
    throw error
  }
  return undefined

  async function serveWith(count: number): Promise<undefined> {
    const { started, close: closeWorkers } = startWorkers(count, config, log)
    closers.push(() => closeWorkers(stop.drains ? 'SIGTERM' : 'SIGINT'))
    if ((await started) || stop.signal.aborted) return undefined
    await close()
    // Its own line on stderr says why.
    process.exit(1)
  }
}

interface Stop {
  /** Aborted when the stop begins. */
  signal: AbortSignal
  /** Aborted when no request may take longer. */
  cutOff: AbortSignal
  /** Whether a load balancer needs time to notice. */
  drains: boolean
}

/** At a signal or an unexpected error: calls `close`, and then ends the process. */
function stopOnSignal(log: Log, close: () => Promise<void>): Stop {
  const stopping = new AbortController()
  const cuttingOff = new AbortController()
  const stop: Stop = { signal: stopping.signal, cutOff: cuttingOff.signal, drains: false }
  closeWithGrace({ delay: closeTimeoutMs, logger: false }, async ({ err, signal }) => {
    // Ctrl-C comes from a person, not a load balancer.
    stop.drains = signal === 'SIGTERM'
    stopping.abort()
    setTimeout(() => cuttingOff.abort(), cutOffMs).unref()
    announceStop()
    if (err) log.fatal({ err }, 'unexpected error: stopping')
    else log.info({ signal }, 'stopping')
    await close()
    log.info('stopped')
    // Nobody may be reading the log any more.
    await Promise.race([new Promise((resolve) => log.flush(resolve)), sleep(logFlushMs)])
  })
  return stop
}

const opsTokenMissing =
  'OPS_TOKEN is required where OPS_HOST is not a loopback address: the ops listener has the admin API. Set OPS_TOKEN, or OPS_HOST=127.0.0.1'

/**
 * For a name with several addresses Fastify would open more servers, without our handlers for
 * parser errors: so one address for each listener.
 */
async function addressesOf({ opsHost, host }: Config): Promise<[ops: string, service: string]> {
  const [ops, service] = await Promise.all(
    [lookup(opsHost), lookup(host)].map((found) => found.catch(() => null)),
  )
  const faults = [
    ...(ops ? [] : ['OPS_HOST does not resolve']),
    ...(service ? [] : ['HOST does not resolve']),
  ]
  if (!ops || !service) throw new Error(faults.join('; '))
  return [ops.address, service.address]
}

/**
 * npm passes a signal to its shell only: without this the service would outlive `npm start`. The
 * signal may also reach the service itself, and a second one would cut the stop short. So wait one
 * interval for it before sending ours.
 */
function stopWithParent(stopping: AbortSignal) {
  const parent = process.ppid
  let isOrphan = false
  const watch = setInterval(() => {
    if (isOrphan) process.kill(process.pid, 'SIGTERM')
    isOrphan = process.ppid !== parent
  }, parentWatchMs)
  watch.unref()
  stopping.addEventListener('abort', () => clearInterval(watch))
}

interface Listener {
  /** Of the variables that set its host and port. */
  prefix: 'OPS_' | ''
  server: FastifyInstance
  host: string
  port: number
  /** Not to be shared with other workers. */
  exclusive: boolean
}

/** Names everything that keeps them from listening, not only the first. */
async function listenOnAll(listeners: Listener[]) {
  const outcomes = await Promise.allSettled(
    listeners.map(async ({ server, host, port, exclusive }) => server.listen({ host, port, exclusive })),
  )
  const faults = outcomes.flatMap((outcome, i) => {
    if (outcome.status === 'fulfilled') return []
    const { prefix, port } = listeners[i]!
    const { code, message } = outcome.reason as NodeJS.ErrnoException
    if (code === 'EADDRNOTAVAIL') return `${prefix}HOST is not an address of this machine`
    return code === 'EADDRINUSE' ? `port ${port} is in use: choose another with ${prefix}PORT` : message
  })
  if (faults.length > 0) throw new Error(faults.join('; '))
}

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
  await createFirstKey(config, stores, port)
  say(`Dashboard: http://localhost:${opsPort}/`)
}

/**
 * On an empty embedded database: creates a first user and key, and prints the key once, so there is
 * something to call with.
 */
async function createFirstKey(config: Config, { users, keys, mintKey }: Stores, port: number) {
  if ((await users.list({ limit: 1 }))!.length > 0) return
  const id = newId('usr_')
  await users.create({ id, name: 'first user' }, actor())
  const wanted = {
    userId: id,
    name: 'first key',
    rateLimitRpm: config.defaultRateLimitRpm,
    expiresAt: null,
  }
  const { token, key } = mintKey(wanted)
  await keys.create(key, actor())
  const lines = [
    '',
    `Your first API key, shown only this once (it belongs to ${id}):`,
    '',
    `  ${token}`,
    '',
    'Try it:',
    '',
    `  curl -i http://localhost:${port}/v1/keys -H 'Authorization: Bearer ${token}'`,
    '',
  ]
  print({ json: null, lines, newKeyId: key.id }, {})
}

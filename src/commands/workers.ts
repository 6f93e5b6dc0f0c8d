/**
 * `serve --workers N`: several instances that share PORT, each a process of its own. The first
 * process starts them, replaces those that die, and passes a stop on. It answers no request.
 */
import type { ChildProcess } from 'node:child_process'
import cluster, { type Worker } from 'node:cluster'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { type Config, workersMax } from '../config.ts'
import type { Log } from '../process/log.ts'

/** Otherwise workers that die at their start would follow each other without a pause. */
const restartAfterMs = 1000
/**
 * Ctrl-C also reaches the workers, and a second signal would cut their stop short. Wait this long
 * before sending one.
 */
const signalDelayMs = 250
const stopping = 'stopping'
const listening = 'listening'

/** Not the event of the same name: that is of the port they share, and another may be in use. */
export const announceListening = () => {
  if (cluster.isWorker) process.send!(listening)
}

/** The first process must not end a worker that has begun to stop by itself. */
export const announceStop = () => {
  if (cluster.isWorker) process.send!(stopping)
}

const portMax = 65535

/** How many workers to run. Throws if several could not share what they count and store. */
export function workerCount({ workers: wanted, databaseUrl, redis, ...config }: Config): number {
  const { host, port, opsHost, opsPort } = config
  const canShare = databaseUrl !== null && redis !== null
  const auto = canShare ? Math.min(availableParallelism(), workersMax) : 1
  const workers = wanted === 'auto' ? auto : wanted
  if (workers > 1 && !canShare)
    throw new Error(
      'WORKERS above 1 needs DATABASE_URL and REDIS_URL: without them each worker would have its own',
    )
  if (opsPort + workers - 1 > portMax)
    throw new Error(
      `OPS_PORT must be at most ${portMax - workers + 1} with ${workers} workers: each takes the next port`,
    )
  if (host === opsHost && port !== 0 && port >= opsPort && port < opsPort + workers)
    throw new Error(
      workers === 1
        ? 'PORT and OPS_PORT must differ'
        : `PORT must not be one of the ${workers} ports from OPS_PORT on: each worker takes the next`,
    )
  return workers
}

export interface Workers {
  /** Resolves to whether all of them listen; one may have ended instead. */
  started: Promise<boolean>
  /** Resolves when all have ended. */
  close(signal: NodeJS.Signals): Promise<void>
}

export function startWorkers(count: number, { opsPort }: Pick<Config, 'opsPort'>, log: Log): Workers {
  const running = new Map<Worker, { isStopping: boolean }>()
  const closing = new AbortController()
  cluster.setupPrimary({ args: ['serve'] })
  // A worker that hangs would keep its port from the next start.
  process.once('exit', () => {
    for (const worker of running.keys()) worker.process.kill('SIGKILL')
  })

  let allStarted = false

  /** Resolves to whether it listens; it may have ended instead. `listens`: one in its place did. */
  function start(index: number, listens = false): Promise<boolean> {
    return new Promise((resolve) => {
      function ended(how: object) {
        resolve(false)
        if (closing.signal.aborted) return
        const line = { worker: index, ...how }
        if (listens || allStarted) void replace(index, line)
        else log.error(line, 'a worker could not start')
      }
      let worker: Worker
      try {
        worker = cluster.fork({
          WORKERS: '1',
          OPS_PORT: String(opsPort === 0 ? 0 : opsPort + index),
        })
      } catch (err) {
        return ended({ err })
      }
      closeUntaken(worker.process)
      const state = { isStopping: false }
      running.set(worker, state)
      worker.on('message', (message) => {
        if (message === stopping) state.isStopping = true
        if (message !== listening) return
        listens = true
        resolve(true)
      })
      worker.once('exit', (code, signal) => {
        running.delete(worker)
        ended({ pid: worker.process.pid, code, signal })
      })
      worker.on('error', (err) => {
        // With a pid, it is about a message to a worker whose exit follows.
        if (worker.process.pid !== undefined) return
        running.delete(worker)
        ended({ err })
      })
    })
  }

  async function replace(index: number, how: object) {
    log.error(how, 'a worker has ended; starting another')
    await pause(restartAfterMs, undefined, { signal: closing.signal }).catch(() => {})
    if (!closing.signal.aborted) await start(index, true)
  }

  async function startAll(): Promise<boolean> {
    // Alone at first: it brings the schema up to date, and reports what keeps all from starting.
    if (!(await start(0)) || closing.signal.aborted) return false
    const others = await Promise.all(Array.from({ length: count - 1 }, (_, i) => start(i + 1)))
    allStarted = !others.includes(false)
    return allStarted
  }

  return {
    started: startAll(),
    async close(signal) {
      closing.abort()
      await pause(signalDelayMs)
      const ended = [...running.keys()].map((worker) => once(worker, 'exit'))
      for (const [worker, { isStopping }] of running) if (!isStopping) worker.process.kill(signal)
      await Promise.all(ended)
    },
  }
}

/**
 * Node sends a connection to a worker and closes its own copy when the worker replies. If the worker
 * dies first, the copy stays open, and the client waits without an answer. The workers share one
 * port, and each gets the next connection when it has replied to the last.
 */
function closeUntaken(worker: ChildProcess) {
  let untaken: { seq: unknown; connection: { close(): void } } | undefined
  const send = worker.send.bind(worker) as (...args: unknown[]) => boolean
  worker.send = (...args: unknown[]) => {
    const [message, connection] = args as [{ seq?: unknown }, { close(): void } | undefined]
    if (connection) untaken = { seq: message.seq, connection }
    return send(...args)
  }
  // A connection that the worker refuses is passed on.
  worker.on('internalMessage', ({ ack }) => {
    if (ack === untaken?.seq) untaken = undefined
  })
  // Not at its exit, when a reply may still be unread, nor when it disconnects: Node does not report
  // that while it waits for a reply.
  worker.once('close', () => untaken?.connection.close())
}

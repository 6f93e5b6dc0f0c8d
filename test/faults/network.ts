/**
 * A network between an instance and Redis that can drop everything. It has a process of its own:
 * inside the one that makes the load it would be as slow as that, and an instance takes a Redis
 * that answers after 100 ms for one that is down.
 *
 * Run as a program: argv is where it leads, messages are orders; it ends with its parent.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { startTcpProxy } from '../services/tcp-proxy.ts'

type Order = 'blackHole' | 'heal'

export interface Network {
  /** Of Redis, through this network. */
  readonly url: string
  /** Resolves once nothing passes. */
  blackHole(): Promise<void>
  /** Resolves once everything passes again. */
  heal(): Promise<void>
}

const program = fileURLToPath(import.meta.url)

export async function startNetwork(t: Test, target: string): Promise<Network> {
  // The TypeScript loader is in execArgv. tap would count coverage, although this run has none.
  const child = fork(program, [target], { env: { ...process.env, _TAPJS_PROCESSINFO_COVERAGE_: '0' } })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const reply = async () => {
    const failed = ended.then(([code]) => Promise.reject(new Error(`the network ended (${code})`)))
    const [message] = await Promise.race([once(child, 'message'), failed])
    return String(message)
  }
  const order = async (what: Order) => {
    const done = reply()
    child.send(what)
    await done
  }
  return { url: await reply(), blackHole: () => order('blackHole'), heal: () => order('heal') }
}

if (process.argv[1] === program) {
  process.once('disconnect', () => process.exit())
  // What a test would tear down goes with the process.
  const proxy = await startTcpProxy({ teardown() {} } as unknown as Test, process.argv[2]!)
  process.on('message', async (order: Order) => {
    await proxy[order]()
    process.send!(order)
  })
  process.send!(proxy.url)
}

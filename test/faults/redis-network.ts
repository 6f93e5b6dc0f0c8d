/**
 * A network between an instance and Redis that can be made to swallow everything. In a process of its own: in the one that makes
 * the load it would be as slow as that is, and to an instance a Redis that answers after 100 ms is one that is away.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

export interface Network {
  /** Of Redis, through this network. */
  readonly url: string
  /** Resolves once nothing passes. */
  blackHole(): Promise<void>
  /** Resolves once everything passes again. */
  heal(): Promise<void>
}

const program = fileURLToPath(new URL('./redis-network-process.ts', import.meta.url))

export async function startNetwork(t: Test, target: string): Promise<Network> {
  // The same execArgv: tap's TypeScript loader is in it. It also counts coverage, which this run has none of.
  const child = fork(program, [target], { env: { ...process.env, _TAPJS_PROCESSINFO_COVERAGE_: '0' } })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const told = async <T>(): Promise<T> => {
    const [message] = await Promise.race([
      once(child, 'message'),
      ended.then(([code]) => Promise.reject(new Error(`the network ended (${code})`))),
    ])
    return message as T
  }
  const order = async (what: 'blackHole' | 'heal') => {
    const done = told()
    child.send(what)
    await done
  }
  const { url } = await told<{ url: string }>()
  return { url, blackHole: () => order('blackHole'), heal: () => order('heal') }
}

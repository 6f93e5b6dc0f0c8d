/** Starts simulating processes, one for each core that tests may use. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Outcome } from './explore.ts'

export const lanes = 2

const file = (name: string) => fileURLToPath(new URL(name, import.meta.url))

/** Yields what the process prints. Rejects if it ends by itself. */
export async function* explore(...args: number[]): AsyncGenerator<Outcome> {
  const loader = new URL('../run/typescript.mjs', import.meta.url).href
  // With a process for each core, threads that collect garbage would only take time from the other one.
  const options = ['--single-threaded-gc', `--import=${loader}`]
  const child = spawn(process.execPath, [...options, file('explore.ts'), ...args.map(String)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve))
  for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line) as Outcome
  const code = await ended
  if (code !== 0) throw new Error(`the simulation ended with ${code}: ${args.join(' ')}`)
}

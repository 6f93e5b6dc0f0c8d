// A program of bench/ as a person starts it, in a process group of its own, as in a terminal.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { builtCli } from '../process/built.ts'
import { aFolder } from '../process/latchkey.ts'
import { until } from '../process/until.ts'

const bench = join(dirname(await builtCli()), '../bench')

export async function startProgram(
  t: Test,
  [name, ...args]: [string, ...string[]],
  env: Record<string, string | undefined>,
  { shell = false } = {},
) {
  const folder = await aFolder(t)
  const child = spawn(process.execPath, [join(bench, name), ...args], {
    detached: true,
    shell,
    env: { ...env, TMPDIR: folder },
  })
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
  const isAlone = () => {
    try {
      return !process.kill(-child.pid!, 0)
    } catch {
      return true
    }
  }
  const files = () => readdir(folder)
  return {
    child,
    /** Temporary ones. */
    files,
    printed: (text: RegExp) =>
      until(`${name} prints ${text}`, () => {
        if (child.exitCode !== null) throw new Error(`${name} has ended: ${output}`)
        const [all, group] = text.exec(output) ?? []
        return group ?? all
      }),
    /** Only the program gets it. */
    signal: (signal: NodeJS.Signals) => child.kill(signal),
    /** Ctrl-C reaches all of its processes. */
    interrupt: () => process.kill(-child.pid!, 'SIGINT'),
    async endsWith(code: number, lastWords: RegExp) {
      t.strictSame(await ended, [code, null], output)
      t.match(output, lastWords)
      await until('no process is left', isAlone)
      t.strictSame(await files(), [], 'no file is left')
    },
  }
}

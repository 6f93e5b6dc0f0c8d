// Latchkey on a terminal, which util-linux's `script` makes.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import type { Test } from 'tap'
import { builtCli } from './built.ts'
import type { Env } from './latchkey.ts'

/** For the option `skip`. */
export const noTerminals =
  !spawnSync('script', ['--version']).stdout?.includes('util-linux') &&
  'there is no util-linux on this machine'

export async function onTerminal(t: Test, env: Env, ...words: string[]) {
  const command = [process.execPath, await builtCli(), ...words].map((word) => `'${word}'`).join(' ')
  const child = spawn('script', ['--quiet', '--return', '--command', command, '/dev/null'], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
    timeout: 60_000,
  })
  let shown = ''
  child.stdout.setEncoding('utf8').on('data', (text) => {
    shown += text
  })
  const ended = once(child, 'close').then(([code]) => ({ code, shown }))
  t.teardown(() => {
    child.kill('SIGKILL')
    return ended
  })
  return {
    ended,
    /** All that the terminal has got so far. */
    get shown() {
      return shown
    },
    type: (text: string) => child.stdin.write(text),
  }
}

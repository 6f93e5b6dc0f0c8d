// One bash in which the commands of a document run, one after the other, as a reader would type
// them.
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { until } from '../process/until.ts'
import { endTree } from '../services/processes.ts'

export interface Shell {
  /** Resolves to the lines that it wrote, on standard error too. */
  run(command: string): Promise<string[]>
  /** Starts what does not end by itself. Resolves once it has written so many lines with text. */
  start(command: string, lines: number): Promise<string[]>
}

/** What HTTP adds by itself or differs between machines: left out of the documents. */
const leftOut = /^(?:(?:date|connection|keep-alive|content-length|transfer-encoding): |\{"level":|npm warn )/i

/**
 * Ended with everything it has started at the end of the test. `here`: what the documents say for
 * paths of this run.
 */
export function openShell(
  t: Test,
  cwd: string,
  env: Record<string, string>,
  preamble: string,
  here: Record<string, string> = {},
): Shell {
  const shell = spawn('bash', ['--norc', '--noprofile'], { cwd, env, stdio: ['pipe', 'pipe', 'inherit'] })
  const closed = once(shell, 'close')
  t.teardown(async () => {
    await endTree(shell.pid!)
    await closed
  })
  let written = ''
  let look = () => {}
  shell.stdout.setEncoding('utf8').on('data', (text) => {
    written += text
    look()
  })
  shell.stdin.write(`exec 2>&1\n${preamble}\n`)

  function run(command: string): Promise<string[]> {
    const mark = randomUUID()
    written = ''
    // An empty line keeps the mark apart from output that does not end its last line.
    shell.stdin.write(`${command}\nprintf '\\n%s\\n' ${mark}\n`)
    return new Promise((resolve, reject) => {
      closed.then(() => reject(new Error(`the shell ended in: ${command}`)))
      look = () => {
        const end = written.indexOf(`\n${mark}\n`)
        if (end >= 0) resolve(linesOf(written.slice(0, end)))
      }
    })
  }

  const linesOf = (text: string) => {
    let found = text
    for (const [path, documented] of Object.entries(here)) found = found.replaceAll(path, documented)
    const lines = found.split('\n').map((line) => line.trimEnd())
    const shown = lines
      .filter((line) => !leftOut.test(line))
      .join('\n')
      .trim()
    return shown === '' ? [] : shown.split('\n')
  }

  return {
    run,
    async start(command, lines) {
      await run(`{ ${command}; } >start.log &`)
      return until(
        `${command} has written ${lines} lines`,
        async () => {
          const found = linesOf(await readFile(join(cwd, 'start.log'), 'utf8').catch(() => ''))
          return found.filter(Boolean).length >= lines && found
        },
        600_000,
      )
    },
  }
}

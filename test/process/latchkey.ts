// Latchkey as a user starts it: a process of its own, with the given arguments and environment and
// nothing else.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { hashSecret } from '../instance.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../services/folders.ts'
import type { Services } from '../services/index.ts'
import { enter, strike } from '../services/ledger.ts'
import { builtCli } from './built.ts'
import { until } from './until.ts'

export type Env = Record<string, string>

export interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
}

export interface Latchkey {
  readonly pid: number
  /** The directory in which it was started: its own, and empty before. */
  readonly folder: string
  /** All it has written so far. */
  readonly stdout: string
  readonly stderr: string
  /** The lines of stdout that are JSON objects, parsed. */
  readonly log: Record<string, unknown>[]
  readonly ended: Promise<Ended>
  kill(signal: NodeJS.Signals): void
}

/** One that listens. */
export interface Serving extends Latchkey {
  readonly url: string
  readonly opsUrl: string
  readonly port: number
}

/** On given servers, with free ports. */
export const externalEnv = (
  { databaseUrl, redisUrl }: Pick<Services, 'databaseUrl' | 'redisUrl'>,
  more: Env = {},
): Env => ({
  DATABASE_URL: databaseUrl,
  // Without Redis, a change waits until copies are too old, and a command says so after two seconds.
  ...(redisUrl !== null ? { REDIS_URL: redisUrl } : { KEY_CACHE_SECONDS: '0' }),
  HASH_SECRET: hashSecret,
  PORT: '0',
  OPS_PORT: '0',
  // There is no load balancer that has to notice.
  DRAIN_SECONDS: '0',
  // Every test comes from one address.
  REFUSALS_PER_ADDRESS_RPM: '1000000000',
  ...more,
})

const twoHoursFast = 'const { now } = Date; Date.now = () => now() + 7_200_000'
/** As on a machine whose clock is two hours fast. For a process of its own. */
export const fastClock: Env = {
  NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(twoHoursFast)}`,
}

/** An empty folder, removed at the end of the test: to be started in, or to be DATA_DIR. */
export async function aFolder(t: Test): Promise<string> {
  const folder = await makeTemporaryFolder('process')
  t.teardown(() => removeTemporaryFolder(folder))
  return folder
}

/** Starts it and does not wait for anything. Killed at the end of the test if it still runs. */
export const spawnLatchkey = (t: Test, env: Env, ...words: string[]) =>
  spawnWith(t, process.execPath, env, words)

/** The same with a Node of its own. */
export async function spawnWith(t: Test, node: string, env: Env, words: string[]): Promise<Latchkey> {
  const cwd = await aFolder(t)
  const latchkey = start(node, await builtCli(), cwd, env, words)
  t.teardown(async () => {
    latchkey.kill('SIGKILL')
    await latchkey.ended
  })
  return latchkey
}

/** Runs a command to its end. */
export async function runLatchkey(t: Test, env: Env, ...words: string[]): Promise<Ended> {
  return (await spawnLatchkey(t, env, ...words)).ended
}

/**
 * Runs one command after the other in one process, to save the starts: about a second of CPU each.
 * Whether a process ends after its command, only runLatchkey shows. `run` uses the environment given
 * here, `runWith` another one; `answerOf` is the JSON value that the command prints.
 */
export async function openCommandLine(t: Test, env: Env = {}) {
  const folder = await aFolder(t)
  const main = join(await builtCli(), '../commands/main.js')
  const driver = join(import.meta.dirname, 'commands.mjs')
  const child = spawn(process.execPath, [driver, main], {
    cwd: folder,
    env: { PATH: process.env.PATH },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = once(child, 'close')
  t.teardown(() => {
    child.kill('SIGKILL')
    return ended
  })
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const runWith = async (own: Env, ...words: string[]): Promise<Ended> => {
    child.stdin.write(`${JSON.stringify({ words, env: { PATH: process.env.PATH, ...own } })}\n`)
    return JSON.parse((await answers.next()).value)
  }
  const run = (...words: string[]) => runWith(env, ...words)
  const answerOf = async (...words: string[]) => JSON.parse((await run(...words, '--json')).stdout)
  return { folder, run, runWith, answerOf }
}

/** `latchkey serve`, listening. */
export async function serveLatchkey(t: Test, env: Env): Promise<Serving> {
  return listening(await spawnLatchkey(t, env, 'serve'))
}

/** Resolves when it says that it listens; throws with what it wrote if it ends instead. */
export async function listening(latchkey: Latchkey): Promise<Serving> {
  let ended: Ended | undefined
  void latchkey.ended.then((how) => {
    ended = how
  })
  const line = await until(
    'it listens',
    () => {
      if (ended !== undefined) throw new Error(`it ended (${ended.code}): ${ended.stderr || ended.stdout}`)
      return latchkey.log.find(({ msg }) => msg === 'listening')
    },
    300_000,
  )
  const port = line.port as number
  const at = { port, url: `http://127.0.0.1:${port}`, opsUrl: `http://127.0.0.1:${line.ops_port}` }
  return Object.assign(latchkey, at)
}

function start(node: string, cli: string, cwd: string, env: Env, words: string[]): Latchkey {
  const child = spawn(node, [cli, ...words], {
    cwd,
    // Nothing is inherited that could configure it.
    env: { PATH: process.env.PATH, ...env },
  })
  const pid = child.pid!
  enter(pid, cwd, cli)
  let stdout = ''
  let stderr = ''
  child.stdin.end()
  child.stdout.setEncoding('utf8').on('data', (text) => {
    stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text) => {
    stderr += text
  })
  const ended = once(child, 'close').then(([code, signal]): Ended => {
    strike(pid)
    return { code, signal, stdout, stderr }
  })
  return {
    pid,
    folder: cwd,
    ended,
    get stdout() {
      return stdout
    },
    get stderr() {
      return stderr
    },
    get log() {
      return stdout
        .split('\n')
        .slice(0, -1)
        .filter((line) => line.startsWith('{'))
        .map((line) => JSON.parse(line))
    },
    kill(signal) {
      child.kill(signal)
    },
  }
}

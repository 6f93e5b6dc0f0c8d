/**
 * A measured process: Latchkey as its users start it, or a peer. Each prints
 * `{"msg":"listening","port":N}` on a line of its own, as Latchkey's log does, and answers the
 * probe's question.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { candidateProgram, latchkeyCli, manifest, probe } from '../paths.ts'
import { question, type Usage } from '../probe.ts'
import { endsWithUs, stopProcess } from './stop-process.ts'

export type CandidateName =
  | 'latchkey'
  | 'latchkey-before'
  | 'plugin'
  | 'bare'
  | 'bare-tuned'
  | 'fastify-rate-limit'
  | 'flexible'
  | 'obvious'
  | 'caching'

export interface Candidate {
  name: string
  url: string
  /** Latchkey's ops listener. */
  opsUrl: string | null
  usage(): Promise<Usage>
  stop(): Promise<void>
}

export interface CandidateOptions {
  databaseUrl: string
  /** null: Latchkey counts in memory. */
  redisUrl: string | null
  hashSecret: string
  /** Settings that are not the defaults. */
  env?: Record<string, string>
  /** Options of node itself. */
  nodeArgs?: string[]
  /** Latchkey's program, if it is not that of this checkout. */
  cli?: string
}

const startMsMax = 20_000

export async function startCandidate(name: CandidateName, options: CandidateOptions): Promise<Candidate> {
  const { databaseUrl, redisUrl, hashSecret, env = {}, nodeArgs = [], cli = latchkeyCli } = options
  const isLatchkey = name.startsWith('latchkey')
  const [program, args] = isLatchkey ? [cli, ['serve']] : [candidateProgram(name), []]
  const startArgs = isLatchkey || name === 'bare-tuned' ? startOptions(cli) : []
  const child = fork(program, args, {
    execArgv: [...startArgs, ...nodeArgs, '--import', probe],
    // Pass nothing else from our environment: NODE_OPTIONS or LOG_LEVEL would change what is
    // measured.
    env: {
      PATH: process.env.PATH,
      NODE_ENV: 'production',
      DATABASE_URL: databaseUrl,
      ...(redisUrl !== null && { REDIS_URL: redisUrl }),
      HASH_SECRET: hashSecret,
      PORT: '0',
      OPS_PORT: '0',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  endsWithUs(child)
  try {
    const { port, ops_port: opsPort } = await listening(child, name)
    return {
      name,
      url: `http://127.0.0.1:${port}`,
      opsUrl: opsPort === undefined ? null : `http://127.0.0.1:${opsPort}`,
      async usage() {
        if (!child.connected) throw new Error(`${name} has ended`)
        child.send(question)
        const [usage] = await once(child, 'message')
        return usage as Usage
      },
      stop: () => stopProcess(child),
    }
  } catch (error) {
    await stopProcess(child)
    throw error
  }
}

/** The options that `npm start` gives to node in this checkout, or in that of another cli.js. */
function startOptions(cli: string): string[] {
  const file = cli === latchkeyCli ? manifest : join(cli, '../../../package.json')
  const { scripts } = JSON.parse(readFileSync(file, 'utf8'))
  return /node (.*)dist\/src\/cli\.js/.exec(scripts.start)![1]!.split(' ').slice(0, -1)
}

interface Listening {
  port: number
  ops_port?: number
}

function listening(child: ChildProcess, name: string): Promise<Listening> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => {
      clearTimeout(timer)
      reject(new Error(`${name} ${why}`))
    }
    const timer = setTimeout(() => fail(`was not listening after ${startMsMax / 1000} s`), startMsMax)
    child.once('exit', (code, signal) => fail(`ended with ${code ?? signal} before it was listening`))
    child.once('error', ({ message }) => fail(`could not be started: ${message}`))
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const { msg, ...ports } = line.startsWith('{') ? JSON.parse(line) : {}
      if (msg !== 'listening') return
      clearTimeout(timer)
      resolve(ports)
    })
  })
}

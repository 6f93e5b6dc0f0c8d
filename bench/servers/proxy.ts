/** A load balancer in front of several instances: nginx or HAProxy, whichever is on PATH. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { freePort } from '../../src/embedded/free-port.ts'
import { type ProxyKind, proxyKinds } from './proxy-kinds.ts'
import { endsWithUs, stopProcess } from './stop-process.ts'

export interface Proxy {
  name: string
  url: string
  stop(): Promise<void>
}

const startMsMax = 5000

/** Null if there is none. */
export function chooseProxy(): ((folder: string, urls: string[]) => Promise<Proxy>) | null {
  const kind = proxyKinds.find(({ name }) => spawnSync(name, ['-v']).status === 0)
  return kind === undefined ? null : (folder, urls) => startProxy(kind, folder, urls)
}

async function startProxy(kind: ProxyKind, folder: string, urls: string[]): Promise<Proxy> {
  const port = await freePort()
  const own = await mkdtemp(join(folder, `${kind.name}-`))
  const file = join(own, 'config')
  await writeFile(
    file,
    kind.config(
      port,
      urls.map((url) => ({ host: new URL(url).host })),
    ),
  )
  const child = spawn(kind.name, kind.args(file, own), { stdio: ['ignore', 'ignore', 'inherit'] })
  // After SIGKILL, nginx would leave its worker behind.
  endsWithUs(child, 'SIGTERM')
  await accepts(port, () => child.exitCode === null)
  return { name: kind.name, url: `http://127.0.0.1:${port}`, stop: () => stopProcess(child) }
}

async function accepts(port: number, runs: () => boolean): Promise<void> {
  for (const untilMs = performance.now() + startMsMax; performance.now() < untilMs; await pause(20)) {
    if (!runs()) throw new Error('the proxy ended immediately')
    const open = await new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1')
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
      socket.once('connect', () => socket.destroy())
    })
    if (open) return
  }
  throw new Error('the proxy does not listen')
}

// A real load balancer or gateway in front of instances.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Backend, type ProxyRules, proxyKinds } from '../../bench/servers/proxy-kinds.ts'
import { onPath } from './binaries.ts'
import { accepts, freePort } from './ports.ts'
import { launch, startPrivateServer } from './private-server.ts'

export interface LoadBalancer {
  readonly url: string
  readonly port: number
}

export type ProxyProgram = 'nginx' | 'haproxy' | 'caddy'

interface Proxy {
  port: number
  /** Name and text of each. */
  files: Record<string, string>
  /** `folder`: where the files are. */
  args(folder: string): string[]
}

/** Null, with a skipped assertion, where the program is not on PATH: the test may then return. */
export async function startProxy(
  t: Test,
  name: ProxyProgram,
  { port, files, args }: Proxy,
): Promise<LoadBalancer | null> {
  const command = await onPath(name)
  if (command === null) {
    t.pass(`behind ${name}`, { skip: `there is no ${name} on this machine` })
    return null
  }
  await startPrivateServer(t, name, async (folder) => {
    for (const [file, text] of Object.entries(files)) await writeFile(join(folder, file), text)
    const env = { PATH: process.env.PATH, HOME: folder }
    return launch({ command, args: args(folder), folder, mark: folder, env, ready: () => accepts(port) })
  })
  return { url: `http://127.0.0.1:${port}`, port }
}

export async function startLoadBalancer(
  t: Test,
  name: 'nginx' | 'haproxy',
  backends: readonly Backend[],
  rules: ProxyRules = {},
): Promise<LoadBalancer | null> {
  const kind = proxyKinds.find((one) => one.name === name)!
  const port = await freePort()
  const files = { config: kind.config(port, backends, rules) }
  return startProxy(t, name, { port, files, args: (folder) => kind.args(join(folder, 'config'), folder) })
}

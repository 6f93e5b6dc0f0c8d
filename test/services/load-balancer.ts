// A real load balancer in front of instances.
import { spawnSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Backend, type ProxyRules, proxyKinds } from '../../bench/servers/proxy-kinds.ts'
import { accepts, freePort } from './ports.ts'
import { launch, startPrivateServer } from './private-server.ts'

export interface LoadBalancer {
  readonly url: string
  readonly port: number
}

/** Null, with a skipped assertion, where the program is not on PATH: the test may then return. */
export async function startLoadBalancer(
  t: Test,
  name: 'nginx' | 'haproxy',
  backends: readonly Backend[],
  rules: ProxyRules = {},
): Promise<LoadBalancer | null> {
  if (spawnSync(name, ['-v']).status !== 0) {
    t.pass(`behind ${name}`, { skip: `there is no ${name} on this machine` })
    return null
  }
  const kind = proxyKinds.find((one) => one.name === name)!
  const port = await freePort()
  await startPrivateServer(t, name, async (folder) => {
    const file = join(folder, 'config')
    await writeFile(file, kind.config(port, backends, rules))
    const ready = () => accepts(port)
    return launch({ command: name, args: kind.args(file, folder), folder, mark: file, ready })
  })
  return { url: `http://127.0.0.1:${port}`, port }
}

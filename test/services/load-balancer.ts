// A real load balancer of one test's own, in front of instances.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Backend, type ProxyRules, proxyKinds } from '../../bench/servers/proxy-kinds.ts'
import { until } from '../process/until.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { enter, strike } from './ledger.ts'
import { accepts, freePort } from './ports.ts'

export interface LoadBalancer {
  readonly url: string
  readonly port: number
}

/** Null where the program is not on PATH; the test then has a skipped assertion that says so, and may return. */
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
  const folder = await makeTemporaryFolder(name)
  const file = join(folder, 'config')
  await writeFile(file, kind.config(port, backends, rules))
  const child = spawn(name, kind.args(file, folder), { stdio: ['ignore', 'ignore', 'pipe'] })
  enter(child.pid!, folder, file)
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text) => {
    said += text
  })
  t.teardown(async () => {
    if (child.exitCode === null) {
      // Not SIGKILL: nginx's worker would outlive its master.
      child.kill('SIGTERM')
      await once(child, 'exit')
    }
    strike(child.pid!)
    await removeTemporaryFolder(folder)
  })
  await until(`${name} listens`, () => {
    if (child.exitCode !== null) throw new Error(`${name} ended: ${said}`)
    return accepts(port)
  })
  return { url: `http://127.0.0.1:${port}`, port }
}

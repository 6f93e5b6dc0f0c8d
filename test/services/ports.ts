// Ports below the range that the system uses for outgoing connections (Linux 32768, macOS 49152): a
// server killed and restarted on its port finds it free again, and so does the bus of a Redis
// Cluster, 10,000 above its node.
import { randomInt } from 'node:crypto'
import { connect, createServer } from 'node:net'

const lowest = 15_000
const highest = 22_000

export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 50; tries++) {
    const port = randomInt(lowest, highest)
    if ((await isFree(port)) && (await isFree(port + 10_000))) return port
  }
  throw new Error(`no free port between ${lowest} and ${highest}`)
}

/** Whether something listens. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(port, '127.0.0.1')
    probe.once('error', () => resolve(false))
    probe.once('connect', () => {
      probe.destroy()
      resolve(true)
    })
  })
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer()
    probe.once('error', () => resolve(false))
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
  })
}

// A network between a client and a server that misbehaves when told to.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { Test } from 'tap'
import { freePort } from './ports.ts'
import { type Link, openLink } from './tcp-link.ts'

export interface TcpProxy {
  /** The target's URL with this proxy's host and port in it; `tcp://…` when the target was given as a port. */
  readonly url: string
  readonly port: number
  /** How many connections clients have open. */
  readonly connections: number
  /** From now on every answer comes this much later; requests arrive at once. */
  delay(ms: number): void
  /** Nothing passes in either direction and nobody is told; new connections are taken and hang. */
  blackHole(): void
  /** Every connection is reset; new ones are taken. */
  cut(): void
  /** New connections are refused; those that are open stay. */
  refuse(): void
  /** No delay, what was held goes on, new connections are taken. */
  heal(): Promise<void>
  /** New connections lead there, as after a failover; those that are open stay where they are. */
  retarget(target: string | number): void
}

const usualPorts: Record<string, number> = { 'redis:': 6379, 'postgres:': 5432, 'postgresql:': 5432 }

export async function startTcpProxy(t: Test, target: string | number): Promise<TcpProxy> {
  const url = urlOf(target)
  let far = addressOf(url)
  const dial = () => connect({ ...far, noDelay: true, allowHalfOpen: true })
  const links = new Set<Link>()
  let delayMs = 0
  let holding = false

  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) => {
    const link = openLink(client, dial, { delayMs: () => delayMs, closed: () => links.delete(link) })
    links.add(link)
    if (!holding) link.release()
  })
  const port = await freePort()
  const listen = async () => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  const cut = () => {
    for (const link of links) link.reset()
  }
  await listen()
  t.teardown(() => {
    cut()
    server.close()
  })

  url.hostname = '127.0.0.1'
  url.port = String(port)
  return {
    url: url.href,
    port,
    get connections() {
      return [...links].filter((link) => link.isOpen()).length
    },
    delay(ms) {
      delayMs = ms
    },
    blackHole() {
      holding = true
      for (const link of links) link.hold()
    },
    cut,
    refuse() {
      server.close()
    },
    async heal() {
      delayMs = 0
      holding = false
      for (const link of links) link.release()
      if (!server.listening) await listen()
    },
    retarget(target) {
      far = addressOf(urlOf(target))
    },
  }
}

const urlOf = (target: string | number) =>
  new URL(typeof target === 'number' ? `tcp://127.0.0.1:${target}` : target)

const addressOf = ({ hostname, port, protocol }: URL) => ({
  host: hostname.replace(/^\[|\]$/g, ''),
  port: Number(port || usualPorts[protocol]),
})

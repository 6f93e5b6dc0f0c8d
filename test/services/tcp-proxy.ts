// A network between a client and a server, which a test can break.
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'
import { freePort } from './ports.ts'

export interface TcpProxy {
  /**
   * The target's URL with this proxy's host and port in it; `tcp://…` when the target was given as
   * a port.
   */
  readonly url: string
  readonly port: number
  /** From now on every response comes this much later; requests arrive at once. */
  delay(ms: number): void
  /**
   * Nothing passes in either direction and no connection is closed; new connections are accepted
   * and hang.
   */
  blackHole(): void
  /**
   * Nothing passes on the open connections any more, and none is closed; new ones work. A firewall
   * that has restarted has forgotten its connections like this.
   */
  forget(): void
  /** Resets every connection and accepts new ones. */
  cut(): void
  /** Refuses new connections; open ones stay. */
  refuse(): void
  /** Ends the delay, passes on what was held, and accepts new connections. */
  heal(): Promise<void>
  /** New connections lead there, as after a failover; open ones stay where they are. */
  retarget(target: string | number): void
}

const usualPorts: Record<string, number> = { 'redis:': 6379, 'postgres:': 5432, 'postgresql:': 5432 }

export async function startTcpProxy(t: Test, target: string | number): Promise<TcpProxy> {
  const url = urlOf(target)
  let server = addressOf(url)
  const dial = () => connect({ ...server, noDelay: true, allowHalfOpen: true })
  const links = new Set<Link>()
  const forgotten = new Set<Link>()
  let delayMs = 0
  let holding = false

  const listener = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) => {
    const link = openLink(client, dial, { delayMs: () => delayMs, closed: () => links.delete(link) })
    links.add(link)
    if (!holding) link.release()
  })
  const port = await freePort()
  const listen = async () => {
    listener.listen(port, '127.0.0.1')
    await once(listener, 'listening')
  }
  const cut = () => {
    for (const link of links) link.reset()
  }
  await listen()
  t.teardown(() => {
    cut()
    for (const link of forgotten) link.reset()
    listener.close()
  })

  url.hostname = '127.0.0.1'
  url.port = String(port)
  return {
    url: url.href,
    port,
    delay(ms) {
      delayMs = ms
    },
    blackHole() {
      holding = true
      for (const link of links) link.hold()
    },
    forget() {
      for (const link of links) {
        link.hold()
        links.delete(link)
        forgotten.add(link)
      }
    },
    cut,
    refuse() {
      listener.close()
    },
    async heal() {
      delayMs = 0
      holding = false
      for (const link of links) link.release()
      if (!listener.listening) await listen()
    },
    retarget(target) {
      server = addressOf(urlOf(target))
    },
  }
}

interface Link {
  hold(): void
  /** Passes on at once whatever was delayed or held. */
  release(): void
  reset(): void
}

/**
 * One connection through the proxy. No byte inside a stream is lost: a network that recovers
 * retransmits what it held.
 */
function openLink(
  client: Socket,
  dial: () => Socket,
  { delayMs, closed }: { delayMs: () => number; closed: () => void },
): Link {
  let server: Socket | undefined
  let streams: Stream[] = []
  const hold = () => {
    for (const stream of streams) stream.hold()
  }
  const reset = () => {
    hold()
    client.resetAndDestroy()
    server?.resetAndDestroy()
    closed()
  }
  const closeBoth = () => {
    if (client.destroyed && server?.destroyed) closed()
  }
  client.on('error', reset).on('close', closeBoth)
  return {
    hold,
    release() {
      // Not before: in a black hole the server does not see the connection either.
      if (!server) {
        server = dial().on('error', reset).on('close', closeBoth)
        streams = [passOn(client, server, () => 0), passOn(server, client, delayMs)]
      }
      for (const stream of streams) stream.release()
    },
    reset,
  }
}

type Stream = Pick<Link, 'hold' | 'release'>

/** Passes pieces on in order, each as late as the delay was when it came; null is the end. */
function passOn(from: Socket, to: Socket, delayMs: () => number): Stream {
  const waiting: { piece: Buffer | null; dueMs: number }[] = []
  let held = true
  let timer: NodeJS.Timeout | undefined

  const receive = (piece: Buffer | null) => {
    waiting.push({ piece, dueMs: performance.now() + delayMs() })
    pass()
  }
  const pass = () => {
    clearTimeout(timer)
    while (!held && waiting[0]) {
      const { piece, dueMs } = waiting[0]
      const leftMs = dueMs - performance.now()
      if (leftMs > 0) {
        timer = setTimeout(pass, leftMs)
        return
      }
      waiting.shift()
      if (piece) to.write(piece)
      else to.end()
    }
  }
  from.on('data', receive).on('end', () => receive(null))
  from.pause()
  return {
    hold() {
      held = true
      from.pause()
    },
    release() {
      held = false
      for (const one of waiting) one.dueMs = 0
      from.resume()
      pass()
    },
  }
}

const urlOf = (target: string | number) =>
  new URL(typeof target === 'number' ? `tcp://127.0.0.1:${target}` : target)

const addressOf = ({ hostname, port, protocol }: URL) => ({
  host: hostname.replace(/^\[|\]$/g, ''),
  port: Number(port || usualPorts[protocol]),
})

/** The requests of the demo: each client sends at its own rate, which rises and falls a little. */
import type { Client } from './customers.ts'

export interface Traffic {
  /** Responses since the last call, by status. */
  taken(): Map<number, number>
  stop(): Promise<void>
}

const everyMs = 100
/** While the service hangs, no more requests than this pile up. */
const inFlightMax = 200
const timeoutMs = 5000
/** A rate changes by a fifth, up and down, in this time. */
const swingS = 90

export function startTraffic(url: string, clients: Client[]): Traffic {
  const due = clients.map(() => Math.random())
  const inFlight = new Set<Promise<void>>()
  let answers = new Map<number, number>()

  async function send({ name, authorization, address }: Client) {
    const headers = {
      'user-agent': name.toLowerCase().replaceAll(/[^a-z]+/g, '-'),
      'x-forwarded-for': address,
      ...(authorization !== null && { authorization }),
    }
    try {
      const response = await fetch(`${url}/v1/verify`, { headers, signal: AbortSignal.timeout(timeoutMs) })
      await response.arrayBuffer()
      answers.set(response.status, (answers.get(response.status) ?? 0) + 1)
    } catch {
      answers.set(0, (answers.get(0) ?? 0) + 1)
    }
  }

  const timer = setInterval(() => {
    const turn = (performance.now() / 1000 / swingS) * 2 * Math.PI
    for (const [i, client] of clients.entries()) {
      // Each at another point of its swing.
      due[i]! += (client.perS * (1 + 0.2 * Math.sin(turn + i)) * everyMs * 2 * Math.random()) / 1000
      for (; due[i]! >= 1; due[i]!--) {
        if (inFlight.size >= inFlightMax) continue
        const sent = send(client).finally(() => inFlight.delete(sent))
        inFlight.add(sent)
      }
    }
  }, everyMs)

  return {
    taken() {
      const taken = answers
      answers = new Map()
      return taken
    },
    async stop() {
      clearInterval(timer)
      await Promise.all(inFlight)
    },
  }
}

/**
 * Other clients, each with a key and a connection of its own, that send requests all the time and
 * check whose response they get.
 */
import type { Test } from 'tap'
import { verify } from './requests.ts'
import { openWire, type Wire } from './wire.ts'

export interface Others {
  /** Responses that were their own. */
  readonly answered: number
  /** Responses that belong to somebody else, and requests without a response. */
  readonly wrong: string[]
  /** Resolves once each client has had that many more. */
  more(count: number): Promise<void>
  stop(): Promise<void>
}

export interface Client {
  id: string
  token: string
}

export function startOthers(t: Test, port: number, clients: readonly Client[]): Others {
  const wrong: string[] = []
  const counts = clients.map(() => 0)
  let stopped = false
  let onCount = () => {}

  const running = clients.map(async ({ id, token }, i) => {
    let wire: Wire | undefined
    while (!stopped) {
      if (wire === undefined || wire.closed) wire = openWire(port)
      const fault = await faultOf(wire, token, id)
      if (fault !== null) wrong.push(`${id} got ${fault}`)
      counts[i]!++
      onCount()
    }
    wire?.socket.destroy()
  })
  const stop = async () => {
    stopped = true
    await Promise.all(running)
  }
  t.teardown(stop)

  return {
    wrong,
    stop,
    get answered() {
      return counts.reduce((sum, count) => sum + count, 0) - wrong.length
    },
    more(count) {
      const wanted = counts.map((so) => so + count)
      return new Promise((resolve) => {
        onCount = () => {
          if (counts.every((so, i) => so >= wanted[i]!)) resolve()
        }
      })
    },
  }
}

async function faultOf(wire: Wire, token: string, id: string): Promise<string | null> {
  try {
    const { status, headers, body, raw } = await wire.ask(verify(token))
    const isOwn = status === 200 && headers.get('x-key-id') === id && body?.key_id === id
    return isOwn && wire.rest === '' && wire.answers.length === 0 ? null : raw + wire.rest
  } catch (error) {
    wire.socket.destroy()
    return (error as Error).message
  }
}

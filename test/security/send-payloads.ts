/** Sends requests with others hidden in or behind them, and says what came of each. */
import type { Trap, Traps } from './trap.ts'
import { openWire, statusesOf, type Wire } from './wire.ts'

export interface Payload {
  what: string
  /** Its bytes with these requests hidden in it, in pieces that arrive one by one. */
  pieces: (hidden: string) => string[]
}

export type Outcome<P extends Payload> = P & {
  wire: Wire
  statuses: number[]
  /** What the hidden requests have done. */
  sprung: string[]
}

/** Connections with a payload at the same time. */
const atOnce = 16

export async function sendPayloads<P extends Payload>(
  port: number,
  traps: Traps,
  payloads: readonly P[],
  /** Resolves when what was sent on these connections has been dealt with. */
  settled: (wires: Wire[]) => Promise<unknown>,
): Promise<Outcome<P>[]> {
  const outcomes: Outcome<P>[] = []
  const set: Trap[] = []
  for (let from = 0; from < payloads.length; from += atOnce) {
    const some = payloads.slice(from, from + atOnce)
    while (set.length < some.length) set.push(await traps.set())
    const wires = await Promise.all(
      some.map(async (payload, i) => {
        const pieces = payload.pieces(set[i]!.bytes)
        const wire = openWire(port, { toHead: pieces.join('').startsWith('HEAD') })
        for (const piece of pieces) await wire.write(piece)
        return wire
      }),
    )
    await settled(wires)
    const sprung = await traps.sprung(set.slice(0, some.length))
    for (const [i, payload] of some.entries()) {
      const wire = wires[i]!
      outcomes.push({ ...payload, wire, sprung: sprung[i]!, statuses: statusesOf(wire.answers) })
      wire.socket.destroy()
      if (sprung[i]!.length > 0) set[i] = await traps.set()
    }
  }
  return outcomes
}

/** Clients that take their time: connections that are begun, and on which a byte a second arrives at most. */
import { connect, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'

export interface Slowness {
  kind: string
  /** Sent at once. */
  begin: string
  /** Sent once a second; nothing: only silence follows. */
  drip: string
}

export interface SlowSocket<Kind extends Slowness = Slowness> {
  readonly slowness: Kind
  /** From its beginning until the other side ended it; null while it is open. */
  readonly livedMs: number | null
  /** All that came back. */
  readonly received: string
}

const dripEveryMs = 1000
/** They come and drip evenly and not all at one moment: what is to be seen is what they cost the service, not what they cost here. */
const ticks = 50
const openedAtOnce = 10

/** Resolves when all are open and have begun, which is 500 in a second. Closed at the end of the test at the latest. */
export async function openSlowSockets<Kind extends Slowness>(
  t: Test,
  port: number,
  count: number,
  slownesses: readonly Kind[],
): Promise<SlowSocket<Kind>[]> {
  const sockets: Slow<Kind>[] = []
  let tick = 0
  const dripping = setInterval(() => {
    tick = (tick + 1) % ticks
    for (let i = tick; i < sockets.length; i += ticks) sockets[i]!.drip()
  }, dripEveryMs / ticks)
  t.teardown(() => {
    clearInterval(dripping)
    for (const { socket } of sockets) socket.destroy()
  })

  while (sockets.length < count) {
    const some = Array.from({ length: Math.min(openedAtOnce, count - sockets.length) }, (_, i) =>
      openOne(port, slownesses[(sockets.length + i) % slownesses.length]!),
    )
    sockets.push(...(await Promise.all(some)))
    await pause(dripEveryMs / ticks)
  }
  return sockets
}

interface Slow<Kind extends Slowness> extends SlowSocket<Kind> {
  socket: Socket
  drip(): void
}

function openOne<Kind extends Slowness>(port: number, slowness: Kind): Promise<Slow<Kind>> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, noDelay: true })
    let livedMs: number | null = null
    let received = ''
    const slow: Slow<Kind> = {
      slowness,
      socket,
      get livedMs() {
        return livedMs
      },
      get received() {
        return received
      },
      drip() {
        if (slowness.drip !== '' && socket.writable) socket.write(slowness.drip)
      },
    }
    socket.setEncoding('latin1').on('data', (text: unknown) => {
      received += text
    })
    socket.once('error', reject)
    // One that was reset while it dripped has ended like any other.
    socket.once('connect', () => {
      const beganMs = performance.now()
      socket.once('close', () => {
        livedMs = performance.now() - beganMs
      })
      if (slowness.begin !== '') socket.write(slowness.begin)
      resolve(slow)
    })
  })
}

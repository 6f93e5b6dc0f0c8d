/**
 * Load at a steady rate, whatever the server does (an open loop). Each request is due at its own
 * time, and its latency counts from then: if the server stalls, the requests that wait for a free
 * connection have waited since they were due.
 */
import { once } from 'node:events'
import { open } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { type Hit, hitOf, type Load, type Shot } from './load.ts'

/** Enough for 25 000 requests a second that take 10 ms each. */
const connections = 256
const lateMsMax = 10_000

export const steadyLoad = (perS: number): Load => ({
  name: `${Math.round(perS)} requests/s`,
  shoot: (shot) => shootSteady(shot, perS),
})

interface Connection {
  socket: Socket
  received: string
  /** When the request under way was due. */
  dueMs: number
}

async function shootSteady(shot: Shot, perS: number): Promise<Hit> {
  const requests = await requestsOf(shot)
  const total = Math.round(shot.seconds * perS)
  const latenciesMs: number[] = []
  let sent = 0
  let failed = 0
  let notOk = 0

  const { hostname, port } = new URL(shot.url)
  const idle: Connection[] = []
  const sockets = Array.from({ length: connections }, () => connect(Number(port), hostname).setNoDelay())
  await Promise.all(sockets.map((socket) => once(socket, 'connect')))
  for (const socket of sockets) {
    const one: Connection = { socket, received: '', dueMs: 0 }
    idle.push(one)
    socket.setEncoding('latin1').on('data', (text: string) => {
      one.received += text
      if (one.received.length < responseLength(one.received)) return
      latenciesMs.push(performance.now() - one.dueMs)
      if (!one.received.startsWith('HTTP/1.1 2')) notOk++
      one.received = ''
      idle.push(one)
    })
    socket.on('error', () => {}).on('close', () => failed++)
  }

  // An answer on the last connection shows that all are accepted. Otherwise the first requests would
  // measure how long it takes to accept hundreds at once.
  idle.pop()!.socket.write(requests[0]!)
  const openMs = performance.now()
  while (idle.length < connections && performance.now() < openMs + lateMsMax) await pause(1)
  latenciesMs.length = 0
  await shot.onOpen?.()

  const startMs = performance.now()
  const dueMs = () => startMs + (sent * 1000) / perS
  const endMs = startMs + shot.seconds * 1000 + lateMsMax
  while (latenciesMs.length + failed < total && performance.now() < endMs) {
    while (sent < total && idle.length > 0 && dueMs() <= performance.now()) {
      const one = idle.pop()!
      one.dueMs = dueMs()
      one.socket.write(requests[sent++ % requests.length]!)
    }
    await pause(1)
  }
  failed = total - latenciesMs.length
  await shot.beforeClose?.()
  for (const socket of sockets) socket.removeAllListeners('close').destroy()
  if (latenciesMs.length === 0) throw new Error(`${shot.url} has not answered`)
  return hitOf(latenciesMs, { seconds: shot.seconds, failed, notOk })
}

async function requestsOf({ url, tokensFile, first, count }: Shot): Promise<string[]> {
  const { pathname, host } = new URL(url)
  const file = await open(tokensFile)
  const requests: string[] = []
  let line = 0
  for await (const token of file.readLines()) {
    if (line++ < first) continue
    requests.push(`GET ${pathname} HTTP/1.1\r\nhost: ${host}\r\nauthorization: Bearer ${token}\r\n\r\n`)
    if (requests.length === count) break
  }
  return requests
}

/** Infinity while the head is incomplete. */
function responseLength(received: string): number {
  const headEnd = received.indexOf('\r\n\r\n')
  if (headEnd === -1) return Number.POSITIVE_INFINITY
  return headEnd + 4 + Number(/\r\ncontent-length: (\d+)/i.exec(received)![1])
}

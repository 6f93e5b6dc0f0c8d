// Requests whose end two servers might see in different places. What is hidden in or behind them
// never runs: not with the service alone, and not through a load balancer that shares its
// connections to the service among its clients. And no client ever gets a response that was meant
// for another.
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type Instance, makeCaller, startInstance } from '../instance.ts'
import { startLoadBalancer, useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { startOthers } from './others.ts'
import { payloads } from './payloads.ts'
import { sendPayloads } from './send-payloads.ts'
import { allSprung, marker, openTraps } from './trap.ts'
import { openWire, statusesOf, type Wire } from './wire.ts'

const otherClients = 6
const rounds = scaled(1, 40)
/** By then each other client has met the connections on which the payloads went. */
const responsesMeanwhile = 3

async function begin(t: Test) {
  const services = await useServices(t)
  const instance = await startInstance(t, services)
  const traps = await openTraps(t, services, instance)
  return { instance, traps, attacker: await makeCaller(instance) }
}

/**
 * Whole in CI. In the soak cut anywhere, because what a server has read at a time decides how it
 * reads on.
 */
function piecesOf(bytes: string): string[] {
  if (!soaking || Math.random() < 0.3) return [bytes]
  const cuts = Array.from({ length: 1 + Math.floor(Math.random() * 3) }, () =>
    Math.floor(Math.random() * bytes.length),
  )
  return [0, ...cuts.sort((a, b) => a - b)].map((cut, i) => bytes.slice(cut, cuts[i]))
}

const allPayloads = (token: string) =>
  payloads(token).map(({ bytes, ...more }) => ({
    ...more,
    pieces: (hidden: string) => piecesOf(bytes(hidden)),
  }))

/** Errors that are not an envelope, and bytes that are not a response. */
const oddIn = ({ answers, rest }: Wire) => [
  ...answers.filter(({ status, body }) => status >= 400 && body?.error === undefined).map(({ raw }) => raw),
  ...(rest === '' ? [] : [rest]),
]

t.test(
  'the service alone runs no request that is hidden in another, nor one behind a doubtful one',
  async (t) => {
    const { instance, traps, attacker } = await begin(t)
    let sent = 0
    let run = 0
    for (let round = 0; round < rounds; round++) {
      const all = allPayloads(attacker.token)
      const doubtful = all.filter(({ plain }) => !plain)
      const hidden = await sendPayloads(instance.port, traps, doubtful, traps.settled)
      for (const { what, sprung, statuses, wire } of hidden) {
        t.same(sprung, [], `${what}: ${statuses}`)
        t.same(oddIn(wire), [], 'every error is an envelope')
        run += sprung.length
      }
      // Where there is no doubt they do run, and the traps show it.
      for (const { what, pieces } of all.filter(({ plain }) => plain)) {
        const trap = await traps.set()
        const wire = openWire(instance.port)
        for (const piece of pieces(trap.bytes)) await wire.write(piece)
        t.same(statusesOf(await wire.answered(3)).slice(1), [200, 201], what)
        t.same(await traps.sprung([trap]), [allSprung], what)
        t.same(oddIn(wire), [])
        wire.socket.destroy()
      }
      sent += all.length
    }
    noFaults(t, instance)
    recordFigure(t, 'smuggling-alone', { payloads: sent, run })
  },
)

for (const [row, name, streamed] of [
  ['smuggling-nginx', 'nginx', false],
  ['smuggling-nginx-streamed', 'nginx', true],
  ['smuggling-haproxy', 'haproxy', true],
] as const) {
  const through = `${name}${name === 'nginx' && streamed ? ' that passes bodies on as they arrive' : ''}`
  t.test(`through ${through} nothing hidden runs, and all clients get their own responses`, async (t) => {
    const { instance, traps, attacker } = await begin(t)
    const backends = [{ host: `127.0.0.1:${instance.port}` }]
    const front = await startLoadBalancer(t, name, backends, { refusedHeader: marker, streamed })
    if (front === null) return
    const clients = await Promise.all(Array.from({ length: otherClients }, () => makeCaller(instance)))
    const seen = watch(instance, attacker.token)
    const others = startOthers(t, front.port, clients)
    await others.more(responsesMeanwhile)

    let sent = 0
    for (let round = 0; round < rounds; round++) {
      const settled = () => others.more(responsesMeanwhile)
      const outcomes = await sendPayloads(front.port, traps, allPayloads(attacker.token), settled)
      for (const { what, sprung, statuses } of outcomes) t.same(sprung, [], `${what}: ${statuses}`)
      sent += outcomes.length
    }
    await others.more(20)
    await others.stop()
    t.same(others.wrong, [], `${others.answered} responses, each to the client it was meant for`)
    t.same(seen.hidden, [], 'no hidden request has reached the service')
    t.ok(seen.shared() > 0, `${seen.shared()} connections carried requests of the attacker and of others`)
    noFaults(t, instance)
    await instance.close()
    const sprung = (await traps.sprung()).flat()
    t.same(sprung, [])
    recordFigure(t, row, {
      payloads: sent,
      run: sprung.length,
      answers: others.answered,
      shared: seen.shared(),
      wrong: others.wrong.length,
    })
  })
}

/** Which requests came to the service, and on which connection. */
function watch({ service }: Instance, attackersToken: string) {
  const users = new Map<Socket, Set<boolean>>()
  const hidden: string[] = []
  service.app.server.on('request', ({ socket, headers, method, url }: IncomingMessage) => {
    if (headers[marker] !== undefined) hidden.push(`${method} ${url}`)
    const isAttacker = headers.authorization === `Bearer ${attackersToken}`
    users.set(socket, (users.get(socket) ?? new Set()).add(isAttacker))
  })
  return { hidden, shared: () => [...users.values()].filter(({ size }) => size === 2).length }
}

function noFaults(t: Test, { log }: Instance) {
  const faults = log.filter(({ level }) => Number(level) >= 40)
  t.same(faults, [], 'the service found no fault of its own')
}

// Requests whose end two servers might see in different places. What is hidden in or behind them never runs: not with the
// service alone, and not through a load balancer that shares its connections to the service among its clients, none of whom
// is ever given an answer that was meant for another.
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type Instance, makeCaller, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { startLoadBalancer, useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { startOthers } from './others.ts'
import { payloads } from './payloads.ts'
import { marker, openTraps, type Trap, type Traps } from './trap.ts'
import { openWire } from './wire.ts'

/** Connections with a payload at the same time. */
const atOnce = 8
const others = 6
const rounds = scaled(1, 40)
/** Answers that each other client has had before what was sent last is looked at: it has met those connections by then. */
const meanwhile = 3

async function begin(t: Test) {
  const services = await useServices(t)
  const instance = await startInstance(t, services)
  const traps = await openTraps(t, services, instance)
  return { instance, traps, attacker: await makeCaller(instance) }
}

interface Sent {
  what: string
  plain: boolean
  /** What the hidden requests have done. */
  sprung: string[]
  statuses: number[]
  /** Errors that are no envelope, and bytes that are no answer. */
  odd: string[]
}

/**
 * Sends all payloads, some at once, and gives what came of each. `settled` resolves when all that was sent has had its time;
 * what is hidden nowhere and is to run (`plainRuns`) is waited for.
 */
async function sendAll(
  port: number,
  traps: Traps,
  token: string,
  settled: () => Promise<unknown>,
  { plainRuns }: { plainRuns: boolean },
): Promise<Sent[]> {
  const results: Sent[] = []
  const set: Trap[] = []
  for (let i = 0; i < atOnce; i++) set.push(await traps.set())
  const count = payloads(token, '').length
  for (let from = 0; from < count; from += atOnce) {
    const sent = await Promise.all(
      set.slice(0, count - from).map(async ({ bytes }, i) => {
        const payload = payloads(token, bytes)[from + i]!
        const wire = openWire(port)
        for (const piece of pieces(payload.bytes)) await wire.written(piece)
        return { ...payload, wire }
      }),
    )
    await settled()
    for (const [i, { what, plain, bytes, wire }] of sent.entries()) {
      const trap = set[i]!
      const hasRun = async () => (await trap.sprung()).length === springs.length
      if (plain && plainRuns) await until('it has run', hasRun).catch(() => {})
      const sprung = await trap.sprung()
      const { answers, rest } = wire
      const odd = answers
        .filter(({ status, body }) => status >= 400 && body?.error === undefined)
        .map(({ text }) => text)
      // The head of an answer to HEAD looks like the beginning of one.
      if (rest !== '' && !bytes.startsWith('HEAD')) odd.push(rest)
      results.push({ what, plain, sprung, statuses: answers.map(({ status }) => status), odd })
      wire.drop()
      if (sprung.length > 0) set[i] = await traps.set()
    }
  }
  return results
}

/** Whole in CI; in the soak cut anywhere, since what a server has read at a time decides how it reads on. */
function pieces(bytes: string): string[] {
  if (!soaking || Math.random() < 0.3) return [bytes]
  const cuts = Array.from({ length: 1 + Math.floor(Math.random() * 3) }, () =>
    Math.floor(Math.random() * bytes.length),
  )
  return [0, ...cuts.sort((a, b) => a - b)].map((cut, i) => bytes.slice(cut, cuts[i]))
}

const springs = ['2 requests counted', 'a key made', 'a key revoked']

t.test(
  'the service alone runs no request that is hidden in another, nor one behind a doubtful one',
  async (t) => {
    const { instance, traps, attacker } = await begin(t)
    const { token } = await makeCaller(instance)
    // The way the hidden ones would take, begun after them.
    const settled = async () => {
      for (let i = 0; i < 3; i++) await instance.ask('DELETE', '/v1/keys/apk_0', { token })
    }
    let sent = 0
    let run = 0
    for (let round = 0; round < rounds; round++) {
      const results = await sendAll(instance.port, traps, attacker.token, settled, { plainRuns: true })
      for (const { what, plain, sprung, statuses, odd } of results) {
        // Where there is nothing to doubt they do run, and are seen to.
        t.same(sprung, plain ? springs : [], `${what}: ${statuses}`)
        t.same(odd, [], 'every error is an envelope')
        if (!plain) run += sprung.length
      }
      sent += results.length
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
  t.test(
    `through ${name}${name === 'nginx' && streamed ? ' that passes bodies on as they come' : ''} nothing hidden runs, and everybody gets his own answers`,
    async (t) => {
      const { instance, traps, attacker } = await begin(t)
      const front = await startLoadBalancer(t, name, [{ host: `127.0.0.1:${instance.port}` }], {
        refusedHeader: marker,
        streamed,
      })
      if (front === null) return
      const clients = await Promise.all(Array.from({ length: others }, () => makeCaller(instance)))
      const seen = watch(instance, attacker.token)
      const asking = startOthers(t, front.port, clients)
      await asking.more(meanwhile)

      let sent = 0
      for (let round = 0; round < rounds; round++) {
        const results = await sendAll(front.port, traps, attacker.token, () => asking.more(meanwhile), {
          plainRuns: false,
        })
        for (const { what, sprung, statuses } of results) t.same(sprung, [], `${what}: ${statuses}`)
        sent += results.length
      }
      await asking.more(20)
      await asking.stop()
      t.same(asking.wrong, [], `${asking.answered} answers, each to whom it was meant for`)
      t.same(seen.hidden, [], 'the service was not even asked')
      t.ok(seen.shared() > 0, `${seen.shared()} connections carried requests of the attacker and of others`)
      noFaults(t, instance)
      await instance.close()
      const sprung = await traps.sprung()
      t.same(sprung, [])
      recordFigure(t, row, {
        payloads: sent,
        run: sprung.length,
        answers: asking.answered,
        shared: seen.shared(),
        wrong: asking.wrong.length,
      })
    },
  )
}

/** Which requests came to the service on which connection. */
function watch({ service }: Instance, attackersToken: string) {
  const users = new Map<Socket, Set<'attacker' | 'other'>>()
  const hidden: string[] = []
  service.app.server.on('request', ({ socket, headers, method, url }: IncomingMessage) => {
    if (headers[marker] !== undefined) hidden.push(`${method} ${url}`)
    const user = headers.authorization === `Bearer ${attackersToken}` ? 'attacker' : 'other'
    users.set(socket, (users.get(socket) ?? new Set()).add(user))
  })
  return { hidden, shared: () => [...users.values()].filter(({ size }) => size === 2).length }
}

function noFaults(t: Test, { log }: Instance) {
  t.same(
    log.filter(({ level }) => Number(level) >= 40),
    [],
    'the service found no fault of its own',
  )
}

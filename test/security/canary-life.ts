// One life of a service under test: what it is asked, what it answers, what is taken from it, and how it ends.
import type { Test } from 'tap'
import type { RawAnswer } from '../api/raw-http.ts'
import { holdCreation } from '../process/held-request.ts'
import { type Env, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { type Misuse, misusesOf, send } from './canary-misuses.ts'
import { filesIn, type Remains } from './canary-remains.ts'

export interface Sent {
  what: string
  answer: RawAnswer
}

export interface Life {
  service: Serving
  opsPort: number
  /** All that was answered but for creations. */
  sent: Sent[]
  mint(by: string, rpm: number): Promise<{ id: string; token: string }>
  /** All that its owner does with a key, on the key of that id. */
  use(token: string, id: string): Promise<void>
  /** A key everywhere where it does not belong, sent by whoever has the other one. */
  misuse(token: string, by: string | null, port?: number): Promise<void>
  readMetrics(): Promise<Remains>
  /** It crashes with a request of the key's owner under way. What it leaves: all it wrote, and what is where it ran. */
  crash(token: string): Promise<Remains>
}

/** How a process dies that does not want to: by an exception that nobody catches, or by abort(3). */
const crashes = {
  exception: 'process.on("SIGUSR1",()=>{throw(new(Error)("crash"))})',
  abort: 'process.on("SIGUSR1",()=>process.abort())',
}

/** With Postgres away each waits for its deadline. */
const atOnce = 32
const json = 'Content-Type: application/json'
const bearer = (token: string) => `Authorization: Bearer ${token}`

export async function live(t: Test, env: Env, crashBy: keyof typeof crashes): Promise<Life> {
  const preload = `--import=data:text/javascript,${encodeURIComponent(crashes[crashBy])}`
  const service = await serveLatchkey(t, { ...env, NODE_OPTIONS: preload })
  const opsPort = Number(new URL(service.opsUrl).port)
  const sent: Sent[] = []
  const ask = (token: string, one: Misuse, port = service.port) =>
    send(port, { ...one, headers: [bearer(token), ...(one.body === undefined ? [] : [json])] })

  return {
    service,
    opsPort,
    sent,
    async mint(by, rpm) {
      const { body } = await ask(by, { method: 'POST', body: `{"name":"x","rate_limit_rpm":${rpm}}` })
      return { id: body.id, token: body.plain_key }
    },
    async use(token, id) {
      const target = `/v1/keys/${id}`
      const asked: Misuse[] = [
        { target: '/v1/verify' },
        {},
        { target },
        { method: 'PATCH', target, body: '{"name":"y"}' },
        { method: 'PATCH', target, body: '{}' },
        { method: 'POST', body: '{"nope":1}' },
        { method: 'DELETE', target },
        { target: '/v1/verify' },
      ]
      for (const one of asked) sent.push({ what: 'where it belongs', answer: await ask(token, one) })
    },
    async misuse(token, by, port = service.port) {
      const left = Object.entries(misusesOf(token, by === null ? [] : [bearer(by)]))
      const work = async () => {
        for (let next = left.shift(); next; next = left.shift()) {
          sent.push({ what: next[0], answer: await send(port, next[1]) })
        }
      }
      await Promise.all(Array.from({ length: atOnce }, work))
    },
    async readMetrics() {
      const remains: Remains = {}
      for (const target of ['/metrics', '/readyz', '/healthz', '/']) {
        remains[`${target} of the ops listener`] = (await send(opsPort, { target })).raw
      }
      return remains
    },
    async crash(token) {
      const held = await holdCreation(t, service, token)
      service.kill('SIGUSR1')
      // After an exception it waits for what is under way.
      if (crashBy === 'exception') held.finish()
      const { code, signal, stdout, stderr } = await service.ended
      if (crashBy === 'abort') t.equal(signal, 'SIGABRT', 'it was aborted')
      else t.equal(code, 1, 'it gave up')
      return {
        [`stdout of the one that ended by ${crashBy}`]: stdout,
        [`stderr of the one that ended by ${crashBy}`]: stderr,
        [`the folder of the one that ended by ${crashBy}`]: await filesIn(service.folder),
      }
    },
  }
}

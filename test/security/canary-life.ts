/** One life of a service under test: the requests, the responses, and how it ends. */
import type { Test } from 'tap'
import { holdCreation } from '../process/held-request.ts'
import { type Env, serveLatchkey } from '../process/latchkey.ts'
import { closing, misusesOf } from './canary-misuses.ts'
import { filesIn, type Remains } from './canary-remains.ts'
import { bearer, json } from './requests.ts'
import { openWire } from './wire.ts'

export interface Sent {
  what: string
  status: number
  // biome-ignore lint/suspicious/noExplicitAny: whatever came back
  body: any
  /** All that came back. */
  raw: string
}

/** How a process dies: by an exception that nobody catches, or by abort(3). */
const crashes = {
  exception: 'process.on("SIGUSR1",()=>{throw(new(Error)("crash"))})',
  abort: 'process.on("SIGUSR1",()=>process.abort())',
}

/** While Postgres is down, each request waits for its deadline. */
const atOnce = 32

/** Sends a request behind which the connection ends. */
export async function send(port: number, bytes: string, what = ''): Promise<Sent> {
  const wire = openWire(port)
  void wire.write(bytes)
  const answers = await wire.ended()
  const { status = 0, body = null } = answers[0] ?? {}
  return { what, status, body, raw: answers.map(({ raw }) => raw).join('') + wire.rest }
}

export async function live(t: Test, env: Env, crashBy: keyof typeof crashes) {
  const preload = `--import=data:text/javascript,${encodeURIComponent(crashes[crashBy])}`
  const service = await serveLatchkey(t, { ...env, NODE_OPTIONS: preload })
  const opsPort = Number(new URL(service.opsUrl).port)
  /** Everything except creations. */
  const sent: Sent[] = []

  return {
    port: service.port,
    opsPort,
    sent,
    async mint(by: string, rpm: number): Promise<{ id: string; token: string }> {
      const body = `{"name":"x","rate_limit_rpm":${rpm}}`
      const created = await send(service.port, closing('POST', '/v1/keys', [bearer(by), json], body))
      return { id: created.body.id, token: created.body.plain_key }
    },
    /** All that the owner of a key does with it, on the key itself. */
    async use(token: string, id: string) {
      const own = `/v1/keys/${id}`
      for (const [method, target, body] of [
        ['GET', '/v1/verify'],
        ['GET', '/v1/keys'],
        ['GET', own],
        ['PATCH', own, '{"name":"y"}'],
        ['PATCH', own, '{}'],
        ['POST', '/v1/keys', '{"nope":1}'],
        ['DELETE', own],
        ['GET', '/v1/verify'],
      ] as const) {
        const headers = body === undefined ? [bearer(token)] : [bearer(token), json]
        sent.push(await send(service.port, closing(method, target, headers, body), 'where it belongs'))
      }
    },
    /** A key everywhere where it does not belong. `by`: the key of the sender, or null. */
    async misuse(token: string, by: string | null, port = service.port) {
      const left = Object.entries(misusesOf(token, by))
      const work = async () => {
        for (let next = left.shift(); next; next = left.shift()) {
          sent.push(await send(port, next[1], next[0]))
        }
      }
      await Promise.all(Array.from({ length: atOnce }, work))
    },
    /** It crashes while it handles a request of the key's owner. Returns all that it wrote. */
    async crash(token: string): Promise<Remains> {
      const held = await holdCreation(t, service, token)
      service.kill('SIGUSR1')
      // After an exception it waits for the requests that it has begun.
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

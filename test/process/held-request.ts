// Requests that stay in flight until a test finishes them, and the answers on their connections.
import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import type { Test } from 'tap'
import type { Serving } from './latchkey.ts'

export interface Held {
  /** Sends the rest of the body. */
  finish(): void
  readonly answer: Promise<{ status: number; connection: string | undefined; text: string }>
}

const body = JSON.stringify({ name: 'in flight' })

/**
 * A creation on a keep-alive connection that has sent half of its body. Resolves when the server
 * has read that much.
 */
export async function holdCreation(t: Test, service: Serving, token: string): Promise<Held> {
  const agent = new Agent({ keepAlive: true })
  t.teardown(() => agent.destroy())
  const sent = request(`${service.url}/v1/keys`, {
    method: 'POST',
    agent,
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'content-length': body.length,
      // The server says 100 Continue when it has the head.
      expect: '100-continue',
    },
  })
  const answer = once(sent, 'response').then(([response]) => read(response))
  answer.catch(() => {}) // the test checks it, or cuts it off on purpose
  const goOn = once(sent, 'continue')
  sent.flushHeaders()
  await goOn
  sent.write(body.slice(0, 5))
  return { answer, finish: () => void sent.end(body.slice(5)) }
}

async function read(response: IncomingMessage) {
  let text = ''
  for await (const chunk of response.setEncoding('utf8')) text += chunk
  return { status: response.statusCode!, connection: response.headers.connection, text }
}

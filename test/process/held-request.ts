// Requests that stay in flight for as long as a test wants, and what comes back on their connection.
import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import type { Test } from 'tap'
import type { Serving } from './latchkey.ts'

export interface Held {
  /** Sends what is missing of the body. */
  finish(): void
  readonly answer: Promise<{ status: number; connection: string | undefined; text: string }>
}

const body = JSON.stringify({ name: 'in flight' })

/** A creation, half of whose body is still to come; on a keep-alive connection. Resolves when the server has read the rest. */
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
  answer.catch(() => {}) // looked at by the test, or cut off on purpose
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

/** One request over a kept connection, and all that can be seen of its answer. */
import { type Agent, type IncomingHttpHeaders, request } from 'node:http'
import { scaled } from '../soak.ts'

export interface ModelAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** Names and values in turn, as they were sent. */
  readonly rawHeaders: readonly string[]
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: whatever was answered
  readonly body: any
  /** Before the first byte was sent and after the last came, Unix milliseconds. */
  readonly sentMs: number
  readonly receivedMs: number
}

/** After this a request without an answer is hanging. */
const hangingMs = scaled(60_000, 10_000)

export function send(
  agent: Agent,
  port: number,
  { method, path, token, json }: { method: string; path: string; token: string | null; json: unknown },
): Promise<ModelAnswer> {
  return new Promise((resolve, reject) => {
    const payload = json === undefined ? null : Buffer.from(JSON.stringify(json))
    const headers = {
      ...(token !== null && { authorization: `Bearer ${token}` }),
      ...(payload && { 'content-type': 'application/json', 'content-length': payload.length }),
    }
    const sentMs = Date.now()
    const sending = request({ agent, host: '127.0.0.1', port, method, path, headers })
    sending.setTimeout(hangingMs, () => sending.destroy(new Error(`no answer in ${hangingMs} ms`)))
    sending.on('error', reject)
    sending.on('response', (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (piece) => {
        text += piece
      })
      response.on('error', reject)
      response.on('end', () => {
        const { statusCode, headers, rawHeaders } = response
        const receivedMs = Date.now()
        resolve({ status: statusCode!, headers, rawHeaders, text, body: parsed(text), sentMs, receivedMs })
      })
    })
    sending.end(payload)
  })
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

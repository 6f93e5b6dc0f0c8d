// One request and another behind it, sent as bytes on one connection, and all that comes back until the connection ends.
import { sendBytes } from '../api/raw-http.ts'

/** Answered without a key, so that it tells of the connection alone. */
const probe = 'GET /docs/errors/unauthorized HTTP/1.1\r\nHost: latchkey.test\r\nConnection: close\r\n\r\n'

/** A request but for who sends it. */
export interface Shape {
  line: string
  headers?: string[]
  body?: string
}

/**
 * All that comes back on the connection until it ends, with a second request sent behind the first: whether that is answered
 * tells whether the first left the connection open. Masked is what differs between any two answers.
 */
export async function transcript(
  port: number,
  { line, headers = [], body = '' }: Shape,
  authorization: string[],
): Promise<string> {
  const framing = body === '' ? [] : [`Content-Length: ${Buffer.byteLength(body)}`]
  const named = authorization.map((value) => `Authorization: ${value}`)
  const head = [line, 'Host: latchkey.test', ...headers, ...framing, ...named, '', ''].join('\r\n')
  const { raw } = await sendBytes(port, Buffer.from(head + body + probe, 'latin1'))
  return raw
    .replace(/req_[0-9A-Za-z]+/g, 'req_…')
    .replace(/^date: .*$/gim, 'date: …')
    .replace(/^(x-ratelimit-(?:remaining|reset)): .*$/gim, '$1: …')
}

/** Their status lines. */
export const answersIn = (raw: string) => raw.match(/HTTP\/1\.1 [0-9]{3} [A-Za-z ]+(?=\r\n)/g) ?? []

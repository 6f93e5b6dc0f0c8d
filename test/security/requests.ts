/** Requests as bytes. Lines end as they should; a test writes out what is to be wrong. */
export const host = 'Host: latchkey.test'
export const json = 'Content-Type: application/json'
export const chunked = 'Transfer-Encoding: chunked'
export const bearer = (token: string) => `Authorization: Bearer ${token}`
export const lengthOf = (body: string) => `Content-Length: ${body.length}`

/** Lines of a head, its end, and what follows. */
export const message = (lines: readonly string[], rest = '') => `${lines.join('\r\n')}\r\n\r\n${rest}`

/** A request with a key; more lines come last. */
export const request = (method: string, target: string, token: string, ...lines: string[]) =>
  message([`${method} ${target} HTTP/1.1`, host, bearer(token), ...lines])

/** A request that does nothing. */
export const verify = (token: string, ...lines: string[]) => request('GET', '/v1/verify', token, ...lines)

/** The head of a creation, framed by the lines given, and what follows. */
export const creation = (token: string, framing: readonly string[], rest = '') =>
  request('POST', '/v1/keys', token, json, ...framing) + rest

/** A creation as it should be. */
export const goodCreation = (token: string, name: string) => {
  const body = JSON.stringify({ name })
  return creation(token, [lengthOf(body)], body)
}

/** One chunk, whole. */
export const chunk = (data: string) => `${data.length.toString(16)}\r\n${data}\r\n`
export const lastChunk = '0\r\n\r\n'

/** Requests as the bytes they are sent as. Lines end as they should; what should not be right is written out by the test. */
export const host = 'Host: latchkey.test'
export const json = 'Content-Type: application/json'
export const bearer = (token: string) => `Authorization: Bearer ${token}`

/** Lines of a head, its end, and what follows. */
export const message = (lines: readonly string[], rest = '') => `${lines.join('\r\n')}\r\n\r\n${rest}`

/** A request that does nothing, and may be sent with more lines. */
export const verify = (token: string, ...lines: string[]) =>
  message(['GET /v1/verify HTTP/1.1', host, bearer(token), ...lines])

/** The head of a creation, framed by the lines given, and whatever follows. */
export const creation = (token: string, framing: readonly string[], rest = '') =>
  message(['POST /v1/keys HTTP/1.1', host, bearer(token), json, ...framing], rest)

/** A creation as it should be. */
export const goodCreation = (token: string, name: string) => {
  const body = JSON.stringify({ name })
  return creation(token, [`Content-Length: ${body.length}`], body)
}

/** One chunk, whole. */
export const chunk = (data: string) => `${data.length.toString(16)}\r\n${data}\r\n`
export const lastChunk = '0\r\n\r\n'

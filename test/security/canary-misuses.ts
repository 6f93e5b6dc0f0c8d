// A key in every place where it does not belong, as requests: what its owner, a library or a proxy may get wrong.
import { type RawAnswer, sendBytes, sendRaw } from '../api/raw-http.ts'

export interface Misuse {
  method?: string
  target?: string
  headers?: string[]
  body?: string
  /** Sent as it is, for what is no HTTP. */
  lines?: string[]
}

const json = 'Content-Type: application/json'
const host = 'Host: latchkey.test'
const hexOf = (text: string) => Buffer.from(text).toString('hex')
const percent = (text: string) => hexOf(text).replace(/../g, '%$&')
const base64 = (text: string) => Buffer.from(text).toString('base64')

const inTarget = (key: string): Record<string, string> => ({
  'a query parameter': `/v1/keys?api_key=${key}`,
  'the name of one': `/v1/keys?${key}=1`,
  'the cursor': `/v1/keys?starting_after=${key}`,
  'the status filter': `/v1/keys?status=${key}`,
  'the limit': `/v1/keys?limit=${key}`,
  'the query of verify': `/v1/verify?access_token=${key}`,
  'an id': `/v1/keys/${key}`,
  'an unknown path': `/${key}`,
  'the middle of a path': `/v1/${key}/keys`,
  'an id twice': `/v1/keys/${key}/${key}`,
  'an id with more around it': `/v1/keys/x${key}x`,
  'an id, percent-encoded': `/v1/keys/${percent(key)}`,
  'an id, its underscore percent-encoded': `/v1/keys/${key.replace('_', '%5f')}`,
  'an id, one letter percent-encoded': `/v1/keys/${key.slice(0, 20)}${percent(key[20]!)}${key.slice(21)}`,
  'an id, percent-encoded twice': `/v1/keys/${percent(key).replaceAll('%', '%25')}`,
  'an id, its underscore percent-encoded twice': `/v1/keys/${key.replace('_', '%255F')}`,
  'an id beside a malformed escape': `/v1/keys/%zz${key}`,
  'an over-long path': `/v1/keys/${'a'.repeat(500)}${key}`,
  'a fragment': `/v1/keys#${key}`,
  'a page of the documentation': `/docs/errors/${key}`,
  'the user of an absolute target': `http://${key}@latchkey.test/v1/keys`,
  'the path of an absolute target': `http://latchkey.test/${key}`,
})

const inHeader = (key: string): Record<string, string> => ({
  'another header': `X-Api-Key: ${key}`,
  'the name of a header': `${key}: 1`,
  'the user agent': `User-Agent: ${key}`,
  'a word of the user agent': `User-Agent: curl/8.1 (${key}; x)`,
  'the end of an over-long user agent': `User-Agent: ${'a'.repeat(240)} ${key}`,
  'the user agent, percent-encoded': `User-Agent: ${percent(key)}`,
  'the referrer': `Referer: https://example.test/?key=${key}`,
  'a cookie': `Cookie: session=${key}`,
  'the address': `X-Forwarded-For: ${key}`,
  'the forwarding': `Forwarded: for=${key}`,
  'the request id': `X-Request-Id: ${key}`,
  'the trace': `Traceparent: ${key}`,
  'the origin': `Origin: https://${key}.test`,
  'what is accepted': `Accept: ${key}`,
  'the expectation': `Expect: ${key}`,
  'another connection option': `Connection: ${key}`,
  'the method override': `X-HTTP-Method-Override: ${key}`,
})

/** Instead of `Bearer` and the key. */
const asCredentials = (key: string): Record<string, string[]> => ({
  'the user of Basic': [`Basic ${base64(`${key}:`)}`],
  'the password of Basic': [`Basic ${base64(`user:${key}`)}`],
  'Basic, bare': [`Basic ${key}`],
  Token: [`Token ${key}`],
  Digest: [`Digest username="${key}"`],
  'bearer in lower case': [`bearer ${key}`],
  'two spaces': [`Bearer  ${key}`],
  quotes: [`Bearer "${key}"`],
  'the key alone': [key],
  'the key and one letter': [`Bearer ${key}x`],
  'the key without its last letter': [`Bearer ${key.slice(0, -1)}`],
  'the key twice': [`Bearer ${key}${key}`],
  'the key over-long': [`Bearer ${key}${'0'.repeat(9000)}`],
  'another prefix': [`Bearer pk_${key.slice(3)}`],
  'percent-encoded': [`Bearer ${percent(key)}`],
  'base64 of it': [`Bearer ${base64(key)}`],
  'two headers': [`Bearer ${key}`, `Bearer ${key}`],
})

const inBody = (key: string): Record<string, Misuse> => ({
  'the name of a member': { headers: [json], body: `{"name":"x","${key}":1}` },
  'the name of a member, escaped': {
    headers: [json],
    body: `{"name":"x","\\u006c\\u006b_${key.slice(3)}":1}`,
  },
  'a member that is a number': { headers: [json], body: `{"name":"x","rate_limit_rpm":"${key}"}` },
  'an unknown member': { headers: [json], body: `{"name":"x","api_key":"${key}"}` },
  'a name of an object': { headers: [json], body: `{"name":{"${key}":1}}` },
  'broken JSON': { headers: [json], body: `{"name":"${key}` },
  'JSON that is a string': { headers: [json], body: `"${key}"` },
  'a form': { headers: ['Content-Type: application/x-www-form-urlencoded'], body: `name=${key}` },
  'the media type': { headers: [`Content-Type: ${key}`], body: '{}' },
  'the charset': { headers: [`${json}; charset=${key}`], body: '{"name":' },
  'the content coding': { headers: [json, `Content-Encoding: ${key}`], body: '{}' },
  'a body that is too large': { headers: [json], body: `{"name":"${key.repeat(500)}"}` },
})

const inNoRequest = (key: string): Record<string, Misuse> => ({
  'beside a NUL': { lines: ['GET / HTTP/1.1', host, `X-A: ${key}\0`, '', ''] },
  'a header without a colon': { lines: ['GET / HTTP/1.1', host, key, '', ''] },
  'the method': { lines: [`${key} / HTTP/1.1`, host, '', ''] },
  'the version': { lines: [`GET / ${key}`, host, '', ''] },
  'all there is': { lines: [key, ''] },
  'the host': { lines: ['GET /v1/keys HTTP/1.1', `Host: ${key}`, 'Connection: close', '', ''] },
  'a second host': { lines: ['GET /v1/keys HTTP/1.1', host, `Host: ${key}`, 'Connection: close', '', ''] },
  'the length': { lines: ['POST /v1/keys HTTP/1.1', host, `Content-Length: ${key}`, '', ''] },
  'the transfer coding': { lines: ['POST /v1/keys HTTP/1.1', host, `Transfer-Encoding: ${key}`, '', ''] },
  'the size of a chunk': {
    lines: ['POST /v1/keys HTTP/1.1', host, 'Transfer-Encoding: chunked', json, '', key, '', ''],
  },
  'headers that are too large': {
    lines: ['GET / HTTP/1.1', host, `X-A: ${key.repeat(500)}`, '', ''],
  },
  'a target that is too long': { lines: [`GET /${key.repeat(500)} HTTP/1.1`, host, '', ''] },
})

/** Each by its place. `own`: the header of whoever sends it, or none. */
export function misusesOf(key: string, own: string[]): Record<string, Misuse> {
  const all: Record<string, Misuse> = {}
  for (const [place, target] of Object.entries(inTarget(key))) {
    all[place] = { target, headers: own }
    all[`${place}, to be deleted`] = { method: 'DELETE', target, headers: own }
  }
  for (const [place, header] of Object.entries(inHeader(key))) all[place] = { headers: [...own, header] }
  for (const [place, one] of Object.entries(inBody(key))) {
    all[`${place}, posted`] = { method: 'POST', ...one, headers: [...own, ...one.headers!] }
    all[`${place}, put`] = { method: 'PUT', ...one, headers: [...own, ...one.headers!] }
  }
  for (const [place, values] of Object.entries(asCredentials(key))) {
    all[`${place} as credentials`] = { headers: values.map((value) => `Authorization: ${value}`) }
  }
  for (const [place, one] of Object.entries(inNoRequest(key))) {
    const [first, ...rest] = one.lines!
    all[place] = { lines: [first!, ...own, ...rest] }
  }
  return all
}

export function send(
  port: number,
  { method = 'GET', target = '/v1/keys', headers, body, lines }: Misuse,
): Promise<RawAnswer> {
  return lines === undefined
    ? sendRaw(port, method, target, headers, body)
    : sendBytes(port, Buffer.from(lines.join('\r\n'), 'latin1'))
}

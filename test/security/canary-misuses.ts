/**
 * A key in every place where it does not belong, as requests: what its owner, a library or a proxy
 * may get wrong.
 */
import { bearer, chunked, host, json, lengthOf, message } from './requests.ts'

/** A request behind which the connection ends. */
export const closing = (method: string, target: string, headers: readonly string[] = [], body = '') =>
  message(
    [
      `${method} ${target} HTTP/1.1`,
      host,
      'Connection: close',
      ...headers,
      ...(body ? [lengthOf(body)] : []),
    ],
    body,
  )

const percent = (text: string) => Buffer.from(text).toString('hex').replace(/../g, '%$&')
const base64 = (text: string) => Buffer.from(text).toString('base64')

const inTarget = (key: string): Record<string, string> => ({
  'a query parameter': `/v1/keys?api_key=${key}`,
  'the name of a parameter': `/v1/keys?${key}=1`,
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
  'a connection option': `Connection: ${key}`,
  'the method override': `X-HTTP-Method-Override: ${key}`,
})

/** Instead of `Bearer` and the key. */
const asCredentials = (key: string): Record<string, string[]> => ({
  'the user of Basic': [`Basic ${base64(`${key}:`)}`],
  'the password of Basic': [`Basic ${base64(`user:${key}`)}`],
  'Basic without base64': [`Basic ${key}`],
  Token: [`Token ${key}`],
  Digest: [`Digest username="${key}"`],
  'bearer in lower case': [`bearer ${key}`],
  'two spaces': [`Bearer  ${key}`],
  quotes: [`Bearer "${key}"`],
  'the key alone': [key],
  'the key and one letter': [`Bearer ${key}x`],
  'the key without its last letter': [`Bearer ${key.slice(0, -1)}`],
  'the key twice': [`Bearer ${key}${key}`],
  'an over-long key': [`Bearer ${key}${'0'.repeat(9000)}`],
  'another prefix': [`Bearer pk_${key.slice(3)}`],
  'percent-encoded': [`Bearer ${percent(key)}`],
  'in base64': [`Bearer ${base64(key)}`],
  'two headers': [`Bearer ${key}`, `Bearer ${key}`],
})

const inBody = (key: string): Record<string, [body: string, ...headers: string[]]> => ({
  'the name of a member': [`{"name":"x","${key}":1}`, json],
  'the name of a member, escaped': [`{"name":"x","\\u006c\\u006b_${key.slice(3)}":1}`, json],
  'a member that is a number': [`{"name":"x","rate_limit_rpm":"${key}"}`, json],
  'an unknown member': [`{"name":"x","api_key":"${key}"}`, json],
  'an object as name': [`{"name":{"${key}":1}}`, json],
  'broken JSON': [`{"name":"${key}`, json],
  'JSON that is a string': [`"${key}"`, json],
  'a form': [`name=${key}`, 'Content-Type: application/x-www-form-urlencoded'],
  'the media type': ['{}', `Content-Type: ${key}`],
  'the charset': ['{"name":', `${json}; charset=${key}`],
  'the content coding': ['{}', json, `Content-Encoding: ${key}`],
  'a body that is too large': [`{"name":"${key.repeat(500)}"}`, json],
})

/**
 * The lines of a request that the parser refuses. The headers of the sender come behind the first.
 */
const malformed = (key: string): Record<string, string[]> => ({
  'beside a NUL': ['GET / HTTP/1.1', host, `X-A: ${key}\0`],
  'a header without a colon': ['GET / HTTP/1.1', host, key],
  'the method': [`${key} / HTTP/1.1`, host],
  'the version': [`GET / ${key}`, host],
  'the first line': [key],
  'the host': ['GET /v1/keys HTTP/1.1', `Host: ${key}`, 'Connection: close'],
  'a second host': ['GET /v1/keys HTTP/1.1', host, `Host: ${key}`, 'Connection: close'],
  'the length': ['POST /v1/keys HTTP/1.1', host, `Content-Length: ${key}`],
  'the transfer coding': ['POST /v1/keys HTTP/1.1', host, `Transfer-Encoding: ${key}`],
  'the size of a chunk': ['POST /v1/keys HTTP/1.1', host, chunked, json, '', key],
  'headers that are too large': ['GET / HTTP/1.1', host, `X-A: ${key.repeat(500)}`],
  'a target that is too long': [`GET /${key.repeat(500)} HTTP/1.1`, host],
})

/** The requests by the place of the key. `by`: the key of the sender, or null. */
export function misusesOf(key: string, by: string | null): Record<string, string> {
  const own = by === null ? [] : [bearer(by)]
  const all: Record<string, string> = {}
  for (const [place, target] of Object.entries(inTarget(key))) {
    all[place] = closing('GET', target, own)
    all[`${place}, to be deleted`] = closing('DELETE', target, own)
  }
  for (const [place, header] of Object.entries(inHeader(key)))
    all[place] = closing('GET', '/v1/keys', [...own, header])
  for (const [place, [body, ...headers]] of Object.entries(inBody(key))) {
    all[`${place}, posted`] = closing('POST', '/v1/keys', [...own, ...headers], body)
    all[`${place}, put`] = closing('PUT', '/v1/keys', [...own, ...headers], body)
  }
  for (const [place, values] of Object.entries(asCredentials(key))) {
    const headers = values.map((value) => `Authorization: ${value}`)
    all[`${place} as credentials`] = closing('GET', '/v1/keys', headers)
  }
  for (const [place, [first, ...rest]] of Object.entries(malformed(key)))
    all[place] = message([first!, ...own, ...rest])
  return all
}

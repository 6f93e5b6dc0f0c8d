// A response that the document does not describe is noticed, whichever part of it is unknown.
import t from 'tap'
import type { Response } from '../../src/openapi/document-types.ts'
import type { Answer } from '../instance.ts'
import { describedBy } from './described.ts'
import { listeners } from './documents.ts'

const { document } = (await listeners()).public
const expectDescribed = describedBy(document)

/** What the document gives as an example of the response to GET /v1/keys/{id}, changed. */
function example(
  change: { status?: number; headers?: Record<string, string | null>; body?: object } = {},
): Answer {
  const described = document.paths['/v1/keys/{id}']!.get!.responses[200] as Response
  const headers = new Headers({ 'content-type': 'application/json' })
  for (const [name, { schema }] of Object.entries(described.headers)) {
    headers.set(name, String(schema.const ?? schema.examples?.[0]))
  }
  for (const [name, value] of Object.entries(change.headers ?? {})) {
    if (value === null) headers.delete(name)
    else headers.set(name, value)
  }
  const body = { ...(described.content!['application/json']!.example as object), ...change.body }
  return { status: change.status ?? 200, headers, body, text: JSON.stringify(body) }
}
const error = (status: number, code: string): Answer => {
  const { examples } = document.components.responses.KeyNotActive!.content!['application/json']!
  const { error } = examples!.key_not_active!.value as { error: object }
  return { ...example({ status }), body: { error: { ...error, code } } }
}

t.test('the examples of the document are described', async () => {
  expectDescribed('GET', '/v1/keys/apk_1?a=b', example())
  expectDescribed('PATCH', '/v1/keys/apk_1', error(409, 'key_not_active'))
})

t.test('another status, header, member or code is not', async (t) => {
  const get = (answer: Answer) => () => expectDescribed('GET', '/v1/keys/apk_1', answer)
  t.throws(get(example({ status: 206 })), /status 206 is not described/)
  t.throws(get(example({ headers: { 'x-ratelimit-reset': null } })), /no header x-ratelimit-reset/)
  t.throws(
    get(example({ headers: { 'x-ratelimit-reset': '61' } })),
    /header x-ratelimit-reset .*multiple of 60/,
  )
  t.throws(get(example({ headers: { 'x-key-id': 'apk_1' } })), /header x-key-id is not described/)
  t.throws(get(example({ headers: { 'content-type': 'text/plain' } })), /type text\/plain is not described/)
  t.throws(get(example({ body: { plain_key: 'lk_1' } })), /must NOT have additional properties/)
  t.throws(get(example({ body: { created_at: '1' } })), /created_at must be integer/)
  const patch = (answer: Answer) => () => expectDescribed('PATCH', '/v1/keys/apk_1', answer)
  t.throws(patch(error(409, 'key_limit_reached')), /code key_limit_reached is not described/)
})

t.test('an operation that the document lacks may only get errors of any path', async (t) => {
  const put = (answer: Answer) => () => expectDescribed('PUT', '/v1/keys/apk_1', answer)
  t.doesNotThrow(put(error(405, 'method_not_allowed')))
  t.throws(put(error(409, 'key_not_active')), /no such operation/)
  t.throws(put(example()), /no such operation/)
})

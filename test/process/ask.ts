// A request with fetch, and its answer whole.
import type { Answer, Ask } from '../instance.ts'

/** `at`: method and URL. */
export async function ask(at: string, { token, json, body, headers }: Ask = {}): Promise<Answer> {
  const space = at.indexOf(' ')
  const response = await fetch(at.slice(space + 1), {
    method: at.slice(0, space),
    headers: {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(json !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(json !== undefined ? { body: JSON.stringify(json) } : body !== undefined && { body: body as string }),
    redirect: 'manual',
  })
  const text = await response.text()
  const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: isJson && text !== '' ? JSON.parse(text) : null,
  }
}

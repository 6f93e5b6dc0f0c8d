// A request to a process, and its answer whole.
import type { Answer, Ask } from '../instance.ts'

/** `at`: method and URL. */
export async function ask(at: string, { token, json, body, headers }: Ask = {}): Promise<Answer> {
  const [method, url] = at.split(' ') as [string, string]
  const response = await fetch(url, {
    method,
    headers: {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(json !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(json !== undefined ? { body: JSON.stringify(json) } : body !== undefined && { body: body as string }),
  })
  const text = await response.text()
  const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false
  return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : null }
}

/** Requests to the admin API. A fault is an Error with the envelope's message and suggestion. */
import { loadAgain, pageNow } from './session.js'

class Fault extends Error {
  constructor({ message, suggestion = '', code }, retryAfter = null) {
    super(message)
    this.code = code
    this.suggestion = retryAfter === null ? suggestion : `${suggestion} (Retry-After: ${retryAfter} s)`
  }
}

/** For a person. Any other error has no suggestion. */
export const textOf = ({ message, suggestion = '' }) => `${message} ${suggestion}`

/**
 * Longer than the slowest change: 30 s in Postgres, and up to 68 s until every instance sees it.
 */
const timeoutMs = 110_000

/** Also leads to the login if the session has ended. */
export async function request(method, path, json) {
  const options = {
    method,
    signal: AbortSignal.timeout(timeoutMs),
    ...(json && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(json) }),
  }
  const { ok, status, retryAfter, text } = await ask(path, options).catch(() => {
    throw new Fault({
      message: 'The service does not answer.',
      suggestion: 'Try again. If this was a change, look at the key first: it may have been made.',
    })
  })
  const body = bodyOf(text)
  if (status === 204 || (ok && body)) return body
  const notOurs = { message: 'The answer is not from Latchkey. Is there a proxy in between?' }
  const fault = new Fault(typeof body?.error?.message === 'string' ? body.error : notOurs, retryAfter)
  // A 401 may have another reason, such as a proxy that changes the host name.
  if (status === 401 && path.startsWith('/admin/') && (await pageNow()) === 'login') {
    fault.isSessionOver = true
    loadAgain()
  }
  throw fault
}

/** A connection may also break off within the body. */
async function ask(path, options) {
  const response = await fetch(path, options)
  const { ok, status, headers } = response
  return { ok, status, retryAfter: headers.get('retry-after'), text: await response.text() }
}

/** A proxy may answer in its own words, or with nothing: null. */
function bodyOf(text) {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

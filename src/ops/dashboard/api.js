/** Requests to the admin API. A fault is an Error with the envelope's message and suggestion. */

class Fault extends Error {
  constructor(status, { message, suggestion = '', request_id: requestId = '' }) {
    super(message)
    this.status = status
    this.suggestion = suggestion
    this.requestId = requestId
  }
}

/** For a person. Any other error has no suggestion. */
export const textOf = ({ message, suggestion = '' }) => `${message} ${suggestion}`

/**
 * Longer than the slowest change: 30 s in Postgres, and up to 68 s until every instance sees it.
 */
const timeoutMs = 110_000

/** Not before a dialog is closed: it may show a new key, which nobody can show again. */
export function toLogin() {
  const dialog = document.querySelector('dialog')
  if (dialog) dialog.addEventListener('close', () => location.reload())
  else location.reload()
}

export async function request(method, path, json) {
  const options = {
    method,
    signal: AbortSignal.timeout(timeoutMs),
    ...(json && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(json) }),
  }
  const { ok, status, retryAfter, text } = await ask(path, options).catch(() => {
    throw new Fault(0, {
      message: 'The service does not answer.',
      suggestion: 'Try again. If this was a change, look at the key first: it may have been made.',
    })
  })
  const body = bodyOf(text)
  if (status === 204 || (ok && body)) return body
  const notOurs = { message: 'The answer is not from Latchkey. Is there a proxy in between?' }
  const fault = new Fault(status, typeof body?.error?.message === 'string' ? body.error : notOurs)
  if (retryAfter !== null) fault.suggestion += ` (Retry-After: ${retryAfter} s)`
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

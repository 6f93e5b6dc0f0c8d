/** Requests to the admin API. A fault is an Error with the envelope's message and suggestion. */

class Fault extends Error {
  constructor(status, { message, suggestion = '', request_id: requestId = '' }) {
    super(message)
    this.status = status
    this.suggestion = suggestion
    this.requestId = requestId
  }
}

/**
 * Longer than the slowest change: 30 s in Postgres, and up to 68 s until every instance sees it.
 */
const timeoutMs = 110_000

export async function request(method, path, json) {
  const response = await fetch(path, {
    method,
    signal: AbortSignal.timeout(timeoutMs),
    ...(json && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(json) }),
  }).catch(() => {
    throw new Fault(0, {
      message: 'The service does not answer.',
      suggestion: 'Try again. If this was a change, look at the key first: it may have been made.',
    })
  })
  const text = await response.text()
  if (response.ok) return text === '' ? null : JSON.parse(text)
  throw new Fault(response.status, envelopeOf(text))
}

/** A proxy may answer in its own words. */
function envelopeOf(text) {
  const notOurs = { message: 'The answer is not from Latchkey. Is there a proxy in between?' }
  try {
    return JSON.parse(text).error ?? notOurs
  } catch {
    return notOurs
  }
}

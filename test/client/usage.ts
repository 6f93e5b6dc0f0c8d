// How the client may be used and how not, for the type checker only. Nothing runs this.
import { createAdminClient, createClient, type Key, LatchkeyError } from '../../src/client/index.ts'

const latchkey = createClient({ baseUrl: 'https://keys.example', key: 'lk_1', timeoutMs: 1000 })
const admin = createAdminClient({ baseUrl: 'http://localhost:9464', token: 'x' })

export async function allowed() {
  const { id, plain_key } = await latchkey.keys.create({ name: 'a', expires_at: null })
  const text: string = id + plain_key
  for await (const key of latchkey.keys.list({ status: 'active', limit: 10 })) {
    const moment: number | null = key.revoked_at satisfies Key['revoked_at']
    if (moment === null) await latchkey.keys.revoke(key.id, { signal: AbortSignal.timeout(1) })
  }
  const { step } = await latchkey.keys.usage(id, { since: 1, step: 'hour' })
  const steps: 'minute' | 'hour' | 'day' = step
  for await (const { reason } of admin.audit({ event: 'auth.refused' })) if (reason === 'revoked') return text
  const found = await admin.lookup(id)
  if (found.type === 'keys') return found.keys[0]!.name
  if (found.type === 'user') return found.user.name
  if (found.type === 'key') return found.key.name
  return found.entries[0]?.reason ?? steps
}

export function isLimit(error: unknown): boolean {
  return error instanceof LatchkeyError && error.code === 'rate_limit_exceeded' && error.retryAfterS !== null
}

export async function refused(error: LatchkeyError) {
  // @ts-expect-error: a client needs a key
  createClient({ baseUrl: 'https://keys.example' })
  // @ts-expect-error: a key needs a name
  await latchkey.keys.create({ rate_limit_rpm: 1 })
  // @ts-expect-error: no member of a key
  await latchkey.keys.create({ name: 'a', limit: 1 })
  // @ts-expect-error: numbers are not text
  await latchkey.keys.update('apk_1', { rate_limit_rpm: '1' })
  // @ts-expect-error: no such state
  latchkey.keys.list({ status: 'deleted' })
  // @ts-expect-error: the secret is shown at creation only
  ;(await latchkey.keys.get('apk_1')).plain_key
  // @ts-expect-error: a list is iterated, not awaited
  ;(await latchkey.keys.list()).data
  // @ts-expect-error: a user may have been found
  ;(await admin.lookup('x')).key.name
  // @ts-expect-error: no such code
  if (error.code === 'not_founded') return
  // @ts-expect-error: operators name the user
  await admin.keys.create({ name: 'a' })
}

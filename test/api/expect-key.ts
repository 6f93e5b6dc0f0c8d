/** A key object: its members, no others, and their types. */
import type { Test } from 'tap'

const text = (value: unknown) => typeof value === 'string'
const seconds = (value: unknown) =>
  Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) < 4_102_444_800
const moment = (value: unknown) => value === null || seconds(value)

const members: Record<string, (value: unknown) => boolean> = {
  id: (value) => /^apk_[0-9A-Za-z]+$/.test(String(value)),
  name: text,
  key_prefix: (value) => text(value) && String(value).length === 10,
  rate_limit_rpm: (value) => Number.isSafeInteger(value) && Number(value) > 0,
  last_used_at: moment,
  expires_at: moment,
  created_at: seconds,
  revoked_at: moment,
}

// biome-ignore lint/suspicious/noExplicitAny: whatever was answered
export function expectKey(t: Test, body: any, { withSecret = false } = {}): void {
  const wanted: typeof members = { ...members, ...(withSecret && { plain_key: text }) }
  t.same(Object.keys(body ?? {}).sort(), Object.keys(wanted).sort(), 'has the members of a key and no others')
  const wrong = Object.entries(wanted).flatMap(([name, fits]) => (fits(body?.[name]) ? [] : [name]))
  t.same(wrong, [], 'each of its type')
}

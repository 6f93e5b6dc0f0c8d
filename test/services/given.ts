// Servers that somebody runs and gave by URL. Only databases named latchkey_test_… are made there, and dropped again.
import type { Found } from './sources.ts'

export const givenPostgres = () => given('TEST_DATABASE_URL')
export const givenRedis = () => given('TEST_REDIS_URL')

async function given(name: string): Promise<Found | null> {
  const url = process.env[name]
  if (!url) return null
  // Never the URL itself: it may hold a password.
  if (!URL.canParse(url)) throw new Error(`${name} is not a URL`)
  return { description: `from ${name}`, url, stop: async () => {} }
}

// The benchmark's keys bypass the service's own insert, so a new column can break them.
import { readFile } from 'node:fs/promises'
import postgres from 'postgres'
import t from 'tap'
import { hashSecret, seedKeys } from '../../bench/keys.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { useServices } from '../services/index.ts'

t.test('a seeded database holds each key by the hash of its token', async (t) => {
  const { databaseUrl } = await useServices(t)
  const { tokensFile, count } = await seedKeys(databaseUrl, t.testdir(), 3)
  const tokens = (await readFile(tokensFile, 'utf8')).trimEnd().split('\n')
  t.equal(tokens.length, count)
  const sql = postgres(databaseUrl, { max: 1 })
  t.teardown(() => sql.end())
  const rows = await sql<{ key_hash: Buffer }[]>`select key_hash from api_keys`
  const stored = rows.map(({ key_hash }) => key_hash.toString('hex')).sort()
  t.same(stored, tokens.map((token) => keyHasher(hashSecret).hashesOf(token).hash).sort())
})

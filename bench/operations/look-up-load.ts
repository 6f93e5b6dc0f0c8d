/** Load on the code that looks up keys (src/guard/key-reader.ts), in this process. */
import { readFile } from 'node:fs/promises'
import { createKeyCache } from '../../src/guard/key-cache.ts'
import { createKeyReader } from '../../src/guard/key-reader.ts'
import { createUnchanged } from '../../src/guard/unchanged.ts'
import { createPool } from '../../src/postgres/pool.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { poolBounds } from '../../src/wiring/pools.ts'
import { hashSecret } from '../keys.ts'
import { callInTurn, type Load } from '../load/load.ts'
import type { Database } from '../rig.ts'
import { storesOn } from './statements.ts'

/** A machine that stalls is not an error. */
const timeoutMs = 10_000

export function lookUpLoad({ url, tokensFile }: Database): Load & { close(): Promise<void> } {
  const pool = createPool({ url, purpose: 'bench', max: poolBounds.lookups.max, timeoutMs })
  const hasher = keyHasher(hashSecret)
  const reader = createKeyReader({
    keys: storesOn(pool).keys,
    cache: createKeyCache(1000),
    unchanged: createUnchanged(),
    onStaleHash: () => {},
    onPostgres: () => {},
    lookupTimeoutMs: timeoutMs,
  })
  let next = 0
  return {
    name: 'look-ups',
    close: () => pool.close(),
    async shoot(shot) {
      const tokens = (await readFile(tokensFile, 'utf8')).trimEnd().split('\n')
      return callInTurn(shot, async () => {
        const token = tokens[next++ % tokens.length]!
        const { ok } = await reader.read(token, hasher.hashesOf(token))
        if (!ok) throw new Error('look-ups: a key is unknown')
      })
    },
  }
}

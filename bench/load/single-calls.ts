/**
 * Calls of the counting script with one key each, as in a Redis Cluster, where most keys are on
 * different slots. Sent by this process, without HTTP.
 */
import { connectRedis } from '../../src/redis/connect.ts'
import { loadScripts, versionKey } from '../../src/redis/scripts.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { hitOf, type Load } from './load.ts'

const keys = 1000
const versionTtlS = 600

/** What loadScripts defines for sql/redis/hit.lua. */
interface Commands {
  latchkeyHitBuffer(...args: (string | number)[]): Promise<Buffer>
}

export async function singleCalls(redisUrl: string): Promise<Load & { close(): void }> {
  const client = connectRedis(parseRedisUrl(redisUrl)!)
  await new Promise<void>((resolve, reject) => client.once('ready', resolve).once('error', reject))
  const { raiseVersion } = loadScripts(client)
  const { latchkeyHitBuffer } = client as unknown as Commands
  const ids = Array.from({ length: keys }, (_, i) => `apk_single_${i}`)
  await Promise.all(ids.map((id) => raiseVersion(id, 1, versionTtlS)))
  let next = 0
  return {
    name: 'calls',
    close: () => client.disconnect(),
    async shoot({ connections, seconds }) {
      const latenciesMs: number[] = []
      const startMs = performance.now()
      const call = async () => {
        for (let atMs = startMs; atMs < startMs + seconds * 1000; ) {
          await latchkeyHitBuffer.call(client, 1, versionKey(ids[next++ % keys]!), 1, 'cluster')
          latenciesMs.push(performance.now() - atMs)
          atMs = performance.now()
        }
      }
      await Promise.all(Array.from({ length: connections }, call))
      return hitOf(latenciesMs, { seconds: (performance.now() - startMs) / 1000 })
    },
  }
}

/**
 * Calls of the counting script with one key each, as in a Redis Cluster, where most keys are on
 * different slots. Sent by this process, without HTTP.
 */
import { once } from 'node:events'
import { connectRedis } from '../../src/redis/connect.ts'
import { type Commands, loadScripts, versionKey } from '../../src/redis/scripts.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { callInTurn, type Load } from './load.ts'

export async function singleCalls(redisUrl: string, keys: number): Promise<Load & { close(): void }> {
  const client = connectRedis(parseRedisUrl(redisUrl)!)
  await once(client, 'ready')
  const { raiseVersion } = loadScripts(client)
  const { latchkeyHitBuffer } = client as unknown as Commands
  const ids = Array.from({ length: keys }, (_, i) => `apk_single_${i}`)
  await Promise.all(ids.map((id) => raiseVersion(id, 1)))
  let next = 0
  const lastMinute = Number.MAX_SAFE_INTEGER
  return {
    name: 'calls',
    close: () => client.disconnect(),
    shoot: (shot) =>
      callInTurn(shot, () =>
        latchkeyHitBuffer.call(client, 1, versionKey(ids[next++ % keys]!), lastMinute, 1, 'cluster'),
      ),
  }
}

/** How much memory a hundred thousand keys take if they are used within a minute. */
import { checked } from '../load/load.ts'
import { connections } from '../measure.ts'
import type { Database, Rig } from '../rig.ts'

const keys = 100_000
const sliceS = 3
const secondsMax = 60
const mb = 1024 * 1024

export interface Held {
  keys: number
  seconds: number
  startMb: number
  endMb: number
  peakMb: number
}

export async function memory(rig: Rig, database: Database): Promise<Held> {
  const one = await rig.start('latchkey', database)
  const start = await one.usage()
  const begunMs = performance.now()
  const tookS = () => (performance.now() - begunMs) / 1000
  let used = 0
  while (used < keys) {
    if (tookS() + sliceS > secondsMax) throw new Error(`only ${used} keys were used in ${secondsMax} s`)
    // A slice that reaches the end starts over, so some of its keys may be used twice.
    const hit = await rig.load.shoot({
      url: `${one.url}/v1/verify`,
      tokensFile: database.tokensFile,
      first: used,
      count: keys - used,
      connections,
      seconds: sliceS,
    })
    used += Math.min(checked('memory', hit).requests, keys - used)
  }
  const seconds = tookS()
  const end = await one.usage()
  await rig.stopCandidates()
  return {
    keys,
    seconds,
    startMb: start.rssBytes / mb,
    endMb: end.rssBytes / mb,
    peakMb: end.peakRssBytes / mb,
  }
}

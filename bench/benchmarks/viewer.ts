/** What somebody who watches the dashboard costs those who send requests. */
import { Redis } from 'ioredis'
import type { Counters } from '../../schemas/counters.ts'
import { counterKey } from '../../src/redis/scripts.ts'
import { newId } from '../../src/rules/id.ts'
import { minuteOf } from '../../src/rules/window.ts'
import type { Load } from '../load/load.ts'
import { atMost, type Outcome } from '../outcome.ts'
import { cpuRatio, ratio } from '../ratios.ts'
import { shown } from '../report/columns.ts'
import type { Rig } from '../rig.ts'
import { inRounds } from '../rounds.ts'
import { howMany } from './compare.ts'

const keys = 1000
const counters = 1_000_000
/** The counters live in this minute and the next ones, as long as the run may take. */
const minutes = 5
const step = 10_000
/** The counters last for a few minutes only. */
const roundsMax = 6
/** Long enough to see what watching costs, and not what it costs to begin. */
const secondsMin = 8
const watched = 'watched'
const unwatched = 'not watched'
const increaseMax = 1.03
const coreShareMax = 0.05
const passMsMax = 300_000

export async function viewer(rig: Rig): Promise<Outcome> {
  const database = await rig.database('viewer', keys)
  await fillCounters(rig)
  const one = await rig.start('latchkey', database)
  const subject = {
    url: one.url,
    processes: [one],
    tokensFile: database.tokensFile,
    tokens: () => ({ first: 0, count: keys }),
  }
  const watchedLoad: Load = {
    name: rig.load.name,
    async shoot(shot) {
      const leave = await watch(one.opsUrl!)
      return rig.load.shoot(shot).finally(leave)
    },
  }
  // The same process twice: two processes of one program differ by more than what is sought.
  const [rounds, seconds] = [Math.min(rig.rounds, roundsMax), Math.max(rig.seconds, secondsMin)]
  const results = await inRounds(
    rig,
    [
      { ...subject, name: watched, load: watchedLoad },
      { ...subject, name: unwatched },
    ],
    { rounds, seconds },
  )
  const pass = await onePass(rig, one.opsUrl!)
  await rig.stopCandidates()
  return {
    name: 'viewer',
    title: 'Somebody watches the dashboard',
    tables: [
      {
        title: 'Somebody watches the dashboard',
        about: `${keys} keys in turn, ${howMany}, ${shown(counters, 0)} counters in Redis. One process in ${rounds} rounds with windows of ${seconds} s; in every other window, somebody watches.`,
        results,
        ratios: [cpuRatio(results, watched, unwatched)],
      },
    ],
    targets: [
      atMost(
        'CPU per request, by that without a viewer',
        ratio(results, 'cpuUs', watched, unwatched),
        increaseMax,
        '×',
      ),
      atMost('p99, by that without a viewer', ratio(results, 'p99Ms', watched, unwatched), increaseMax, '×'),
      atMost('cores of Redis during a pass over all counters', pass.redisCores, coreShareMax, 'cores'),
    ],
    notes: [
      `Without other load, a pass over all counters took ${pass.seconds.toFixed(0)} s and ${(pass.redisCores * 100).toFixed(1)} % of a core of Redis, and read the ${shown(pass.scanned, 0)} of that minute.`,
    ],
  }
}

async function fillCounters({ redis, say }: Rig): Promise<void> {
  say(`${counters} counters`)
  const client = new Redis(redis.url)
  const first = minuteOf(Date.now())
  for (let made = 0; made < counters; made += step) {
    const batch = client.pipeline()
    for (let i = 0; i < step; i++)
      batch.set(counterKey(newId('apk_'), first + (i % minutes)), 1 + (i % 100), 'EX', 3600)
    await batch.exec()
  }
  client.disconnect()
}

type Seen = (event: string, data: string) => void

/** Resolves to a function that leaves, once events arrive. */
async function watch(opsUrl: string, seen: Seen = () => {}): Promise<() => void> {
  const leaving = new AbortController()
  const { body } = await fetch(`${opsUrl}/admin/events`, { signal: leaving.signal })
  const read = async () => {
    let text = ''
    for await (const piece of body!.pipeThrough(new TextDecoderStream())) {
      text += piece
      const whole = text.lastIndexOf('\n\n') + 2
      for (const [, name, data] of text.slice(0, whole).matchAll(/^event: (.*)\ndata: (.*)$/gm))
        seen(name!, data!)
      text = text.slice(whole)
    }
  }
  read().catch(() => {})
  return () => leaving.abort()
}

async function onePass({ redis }: Rig, opsUrl: string) {
  const startedMs = performance.now()
  const before = await redis.usage()
  let leave = () => {}
  const scanned = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no pass over the counters ended')), passMsMax)
    const seen: Seen = (event, data) => {
      const counters: Counters | null = event === 'counters' ? JSON.parse(data) : null
      if (!counters?.complete) return
      clearTimeout(timer)
      resolve(counters.scanned)
    }
    watch(opsUrl, seen).then((stop) => {
      leave = stop
    }, reject)
  })
  leave()
  const seconds = (performance.now() - startedMs) / 1000
  const usedS = ((await redis.usage()).cpuUs - before.cpuUs) / 1e6
  return { seconds, scanned, redisCores: usedS / seconds }
}

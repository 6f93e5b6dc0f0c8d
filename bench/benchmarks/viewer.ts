/** What an open dashboard costs callers. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { type ChainableCommander, Redis } from 'ioredis'
import { counterKey } from '../../src/redis/scripts.ts'
import { minuteOf } from '../../src/rules/window.ts'
import { numberedId } from '../keys.ts'
import { steadyLoad } from '../load/steady.ts'
import type { Subject } from '../measure.ts'
import { atMost, type Outcome } from '../outcome.ts'
import { cpuRatio, ratio } from '../ratios.ts'
import { shown } from '../report/columns.ts'
import type { Rig } from '../rig.ts'
import { inRounds, type Result } from '../rounds.ts'
import { endsWithUs } from '../servers/stop-process.ts'
import { howMany } from './compare.ts'

const keys = 1000
const counters = 1_000_000
/** The counters live in this minute and the next ones, as long as the run may take. */
const minutes = 16
const step = 10_000
/** The counters last for some minutes only. */
const roundsMax = 6
/** At full load, callers also wait because the cores are short. At this rate there is room. */
const steadyPerS = 2000
const secondsMin = 8
/**
 * How long the dashboard has been open when a window begins. Opening it costs more, and happens
 * once.
 */
const watchedForMs = 4000
const watched = 'watched'
const unwatched = 'not watched'
const increaseMax = 1.03
/** The instance reads on for 5 s after its last viewer has left. */
const scanEndsMs = 6000
/**
 * Seconds of a minute in which windows begin. Before, the instance stores the usage of the last
 * minute, which takes a quarter of a core of Redis, watched or not.
 */
const beginsS = [24, 46] as const

export async function viewer(rig: Rig): Promise<Outcome> {
  const database = await rig.database('viewer', keys)
  const removeCounters = await fillCounters(rig)
  const one = await rig.start('latchkey', database)
  const subject = {
    url: one.url,
    processes: [one],
    tokensFile: database.tokensFile,
    tokens: () => ({ first: 0, count: keys }),
  }
  let leftMs = 0
  const subjects: Subject[] = [
    {
      ...subject,
      name: watched,
      async begin() {
        await quietPhase()
        const leave = await watch(one.opsUrl!)
        await pause(watchedForMs)
        return () => {
          leave()
          leftMs = performance.now()
        }
      },
    },
    {
      ...subject,
      name: unwatched,
      async begin() {
        await pause(Math.max(0, leftMs + scanEndsMs - performance.now()))
        await quietPhase()
        return () => {}
      },
    },
  ]
  // The same process twice: two processes of one program differ by more than what is sought.
  const [rounds, seconds] = [Math.min(rig.rounds, roundsMax), Math.max(rig.seconds, secondsMin)]
  const atSteadyRate = subjects.map((subject) => ({ ...subject, load: steadyLoad(steadyPerS) }))
  const full = await inRounds(rig, subjects, { rounds, seconds })
  const steady = await inRounds(rig, atSteadyRate, { rounds, seconds })
  await rig.stopCandidates()
  await removeCounters()
  const about = `${keys} keys in turn, ${shown(counters, 0)} counters in Redis. One process in ${rounds} rounds with windows of ${seconds} s; in every other window, somebody watches, and has for ${watchedForMs / 1000} s.`
  const loads = [
    { at: 'at full load', results: full, about: `${howMany}, ${about}` },
    { at: `at ${shown(steadyPerS, 0)} requests a second`, results: steady, about: `An open loop, ${about}` },
  ]
  const increase = (figure: string, results: Result[], of: 'cpuUs' | 'p99Ms') =>
    atMost(`${figure}, by that without a viewer`, ratio(results, of, watched, unwatched), increaseMax, '×')
  return {
    name: 'viewer',
    title: 'Somebody watches the dashboard',
    tables: loads.map(({ at, results, about }) => ({
      title: `Somebody watches the dashboard, ${at}`,
      about,
      results,
      ratios: [cpuRatio(results, watched, unwatched)],
    })),
    targets: loads.flatMap(({ at, results }) => [
      increase(`CPU per request ${at}`, results, 'cpuUs'),
      increase(`p99 ${at}`, results, 'p99Ms'),
    ]),
    notes: [
      'How long a pass over all counters takes, and what it costs Redis: the row `counters-scan` of docs/reliability.md.',
    ],
  }
}

async function quietPhase(): Promise<void> {
  const [fromS, untilS] = beginsS
  const s = (Date.now() / 1000) % 60
  if (s < fromS || s > untilS) await pause(((fromS - s + 60) % 60) * 1000)
}

/** Resolves to what removes them: instances of the next benchmark would scan them too. */
export async function fillCounters(
  { redis, say }: Pick<Rig, 'redis' | 'say'>,
  count = counters,
): Promise<() => Promise<void>> {
  say(`${count} counters`)
  const first = minuteOf(Date.now())
  const nameOf = (i: number) => counterKey(numberedId('apk_', i), first + (i % minutes))
  const forEach = async (add: (batch: ChainableCommander, i: number) => unknown) => {
    const client = new Redis(redis.url)
    for (let done = 0; done < count; done += step) {
      const batch = client.pipeline()
      for (let i = done; i < done + step; i++) add(batch, i)
      await batch.exec()
    }
    client.disconnect()
  }
  await forEach((batch, i) => batch.set(nameOf(i), 1 + (i % 100), 'EX', 3600))
  return () => forEach((batch, i) => batch.unlink(nameOf(i)))
}

const program = `
  require('node:http').get(process.argv[1], (events) => {
    events.once('data', () => process.send('watching')).resume()
  })`

/**
 * Resolves to a function that leaves, once events arrive. The viewer is a process of its own: reading
 * events in this one would delay the load at a steady rate, and so raise the latencies it measures.
 */
async function watch(opsUrl: string): Promise<() => void> {
  const args = ['--eval', program, `${opsUrl}/admin/events`]
  const viewer = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  endsWithUs(viewer)
  const ended = once(viewer, 'exit').then(() => {
    throw new Error('the viewer of the dashboard has ended')
  })
  await Promise.race([once(viewer, 'message'), ended])
  ended.catch(() => {})
  return () => viewer.kill()
}

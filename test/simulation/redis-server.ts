/** A small model of Redis: what the scripts in sql/redis do, and what a replica has of it. */
import type { Refusal } from './schedule.ts'

interface Entry {
  text: string
  expiresMs: number
}

interface Write {
  atMicros: number
  name: string
  entry: Entry | undefined
}

export interface RedisServer {
  readonly data: Map<string, Entry>
  /** For snapshots and replicas. */
  readonly writes: Write[]
  /** Its clock less the real time. */
  clockMs: number
  frozenUntilMs: number
  down: boolean
  /** Until then, it answers with this error. */
  refuses: { untilMs: number; reply: Refusal }
  /** Runs a command as src/redis/scripts.ts sends it. */
  run(command: string, args: (string | number)[]): unknown
}

/** `nowMicros`: the real time; `copied`: what it has from another server. */
export function createServer(
  nowMicros: () => number,
  copied: readonly Write[] = [],
  clockMs = 0,
): RedisServer {
  const data = new Map<string, Entry>()
  const writes: Write[] = []
  let lastMicros = 0
  const refuses = { untilMs: 0, reply: 'OOM' as Refusal }
  const server = { data, writes, clockMs, frozenUntilMs: 0, down: false, refuses, run }
  for (const { name, entry } of copied) put(name, entry)

  function put(name: string, entry: Entry | undefined) {
    writes.push({ atMicros: nowMicros(), name, entry })
    if (entry) data.set(name, entry)
    else data.delete(name)
  }
  const clock = () => nowMicros() / 1000 + server.clockMs
  function get(name: string): string | null {
    const entry = data.get(name)
    if (entry && entry.expiresMs <= clock()) data.delete(name)
    return data.get(name)?.text ?? null
  }
  const set = (name: string, text: string | number, ttlS: number) =>
    put(name, { text: String(text), expiresMs: clock() + ttlS * 1000 })

  /** Two scripts never run in the same microsecond. */
  function timeOf(): [number, number] {
    let micros = nowMicros() + server.clockMs * 1000
    if (micros === lastMicros) micros++
    lastMicros = micros
    return [Math.floor(micros / 1e6), micros % 1e6]
  }

  function version(name: string, [s, micros]: [number, number], isFirst: boolean): number | string {
    const text = get(name)
    if (text !== null && /^([1-9]\d{0,9}|\d+\?[\d.]+)$/.test(text)) {
      if (text.includes('?')) return text
      if (isFirst) set(name, text, 600)
      return Number(text)
    }
    const lease = `0?${s}.${micros}`
    set(name, lease, 600)
    return lease
  }

  function hit(names: string[], [lastMinute, ...hits]: number[]) {
    const now = timeOf()
    const numbers: number[] = [...now]
    const leases: string[] = []
    if (Math.floor(now[0] / 60) > lastMinute!) return Buffer.from(Float64Array.from(numbers).buffer)
    names.forEach((name, i) => {
      const counter = name.slice(0, -1) + Math.floor(now[0] / 60)
      const some = hits[i] ?? 1
      const count = Number(get(counter) ?? 0) + some
      if (count === some || count % 8 < some) set(counter, count, 120)
      else put(counter, { text: String(count), expiresMs: data.get(counter)!.expiresMs })
      const known = version(name, now, count === some)
      if (typeof known === 'string') leases.push(known)
      numbers.push(count, typeof known === 'string' ? 0 : known)
    })
    return Buffer.concat([Buffer.from(Float64Array.from(numbers).buffer), Buffer.from(leases.join(' '))])
  }

  function raise(name: string, raised: number, ttlS: number) {
    const known = Math.max(raised, Number.parseInt(get(name) ?? '0', 10))
    const [s, micros] = timeOf()
    set(name, `${known}?${s}.${micros}`, ttlS)
    return known
  }

  function confirm(names: string[], ttlS: number, pairs: (string | number)[]) {
    names.forEach((name, i) => {
      const [lease, read] = pairs.slice(2 * i)
      if (get(name) === lease) set(name, read!, ttlS)
    })
    return null
  }

  function run(command: string, args: (string | number)[]): unknown {
    const [name, ...rest] = args as [string, ...number[]]
    if (command === 'client') return 'OK'
    if (command === 'latchkeyProbe') return timeOf()
    if (command === 'get') return get(name)
    if (command === 'latchkeyRaise') return raise(name, rest[0]!, rest[1]!)
    const keys = Number(args[0])
    const names = args.slice(1, 1 + keys) as string[]
    const more = args.slice(1 + keys)
    if (command === 'latchkeyConfirm') return confirm(names, Number(more[0]), more.slice(1))
    return hit(names, more.map(Number))
  }
  return server
}

/** What a replica or a snapshot of this moment has. */
export const writesUntil = (server: RedisServer, atMicros: number) =>
  server.writes.filter((one) => one.atMicros <= atMicros)

/**
 * What the dashboard shows, read once a second for all viewers together, and not at all while nobody
 * looks. Each source is read by itself, so one that is stuck holds up no other. Viewers get what has
 * changed, as server-sent events.
 */
export interface Viewer {
  send(events: string): void
  /** There will be no more events. */
  end(): void
}

export interface Live {
  /**
   * Sends everything known, then every change. Returns the function that ends it, or null if there
   * are too many viewers or this instance is closing.
   */
  watch(viewer: Viewer): (() => void) | null
}

export interface LiveOptions<Name extends string> {
  /** By the name of their event. A source that rejects is shown as null. */
  sources: Record<Name, () => unknown>
  /** Events of this source are stored, and each new viewer gets them first, as `history`. */
  history: Name
  /** Disconnects all viewers, who reconnect to another instance. */
  isClosing: () => boolean
}

/** Each source is read this often. */
const everyMs = 1000
const viewersMax = 50
const historyMax = 300

export const eventOf = (name: string, json: string) => `event: ${name}\ndata: ${json}\n\n`

export function createLive<Name extends string>(options: LiveOptions<Name>): Live {
  const { sources, history, isClosing } = options
  const viewers = new Set<Viewer>()
  const latest = new Map<string, string>()
  const past: string[] = []
  let rememberedMs = Number.NEGATIVE_INFINITY
  const reading = new Set<string>()
  const entries = Object.entries<() => unknown>(sources)
  let turns = 0
  let timer: NodeJS.Timeout | undefined

  async function read(name: string, source: () => unknown) {
    // The previous read is still running: do not ask a slow server twice.
    if (reading.has(name)) return
    reading.add(name)
    const value = await Promise.resolve()
      .then(source)
      .catch(() => null)
    reading.delete(name)
    const json = JSON.stringify(value)
    if (viewers.size === 0 || latest.get(name) === json) return
    latest.set(name, json)
    if (name === history && value !== null) remember(json)
    for (const viewer of viewers) viewer.send(eventOf(name, json))
  }

  /** A viewer that keeps reconnecting reads more often: that must not push out the minutes before. */
  function remember(json: string) {
    const nowMs = performance.now()
    if (nowMs - rememberedMs < everyMs / 2) return
    rememberedMs = nowMs
    if (past.push(json) > historyMax) past.shift()
  }

  /** One source per tick: reading all at once would keep callers waiting for the CPU. */
  function tick() {
    if (isClosing()) {
      for (const viewer of viewers) viewer.end()
      return
    }
    const [name, source] = entries[turns++ % entries.length]!
    void read(name, source)
  }

  function leave(viewer: Viewer) {
    viewers.delete(viewer)
    if (viewers.size > 0) return
    clearInterval(timer)
    latest.clear()
  }

  return {
    watch(viewer) {
      if (isClosing() || viewers.size >= viewersMax) return null
      viewer.send(eventOf('history', `[${past.join(',')}]`))
      for (const [name, json] of latest) viewer.send(eventOf(name, json))
      viewers.add(viewer)
      if (viewers.size === 1) {
        timer = setInterval(tick, everyMs / entries.length)
        for (const [name, source] of entries) void read(name, source)
      }
      return () => leave(viewer)
    },
  }
}

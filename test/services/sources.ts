// Where Postgres and Redis come from, and in which order the places are tried.
export const sources = ['env', 'docker', 'local', 'npm'] as const
export type Source = (typeof sources)[number]

const absent: Record<Source, (what: string) => string> = {
  env: (what) => `no ${what === 'Redis' ? 'TEST_REDIS_URL' : 'TEST_DATABASE_URL'}`,
  docker: () => 'no container engine answers',
  local: (what) => `this machine has no ${what} binaries`,
  npm: (what) => `no ${what} by npm`,
}

/** A running server, found or started. */
export interface Found {
  /** For the line that is printed, e.g. `Redis 7.0.15 from this machine's binaries`. */
  description: string
  url: string | null
  /** Ends what was started for it; nothing for a server that was given. */
  stop(): Promise<void>
}

/** Answers null where this source does not exist here, throws where it does and fails. */
export type Find<T extends Found> = () => Promise<T | null>

/** TEST_SERVICES: one source for both, or null for the order above. */
export function forcedSource(): Source | null {
  const wanted = process.env.TEST_SERVICES
  if (!wanted) return null
  const source = sources.find((name) => name === wanted)
  if (!source) throw new Error(`TEST_SERVICES must be one of ${sources.join(', ')}`)
  return source
}

/**
 * The first source that has one. A server that was given by URL is used or the run fails: silently testing against
 * another would deceive. The others make way for the next one and leave a remark.
 */
export async function find<T extends Found>(what: string, finders: Record<Source, Find<T>>): Promise<T> {
  const forced = forcedSource()
  const remarks: string[] = []
  for (const source of forced ? [forced] : sources) {
    try {
      const found = await finders[source]()
      if (found) return { ...found, description: [found.description, ...remarks].join('; ') }
    } catch (cause) {
      if (forced || source === 'env') throw cause
      remarks.push(`${source} failed: ${firstLine(cause)}`)
    }
  }
  throw new Error(
    forced ? `TEST_SERVICES=${forced} and ${absent[forced](what)}` : `no ${what}: ${remarks.join('; ')}`,
  )
}

export const firstLine = (error: unknown) => String((error as Error)?.message ?? error).split('\n')[0] ?? ''

/** What the operations over HTTP are compared with: the same work without HTTP. */
import type { Load } from '../load/load.ts'
import type { Sample, Subject } from '../measure.ts'

/** The columns of both tables. */
export const figures: (keyof Sample)[] = ['requestsPerS', 'p50Ms', 'p99Ms', 'postgresCpuUs']

export const besideOf = (name: string) => `${name}, pgbench`

export const withoutHttp = (name: string, load: Load, connections: number): Subject => ({
  name,
  url: '',
  processes: [],
  load,
  tokensFile: '',
  tokens: () => ({ first: 0, count: 1 }),
  connections,
})

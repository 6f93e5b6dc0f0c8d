/** The figures of each candidate, in this order, in tables and plots. */
import type { Sample } from '../measure.ts'

export interface Column {
  figure: keyof Sample
  title: string
  digits: number
}

export const columns: Column[] = [
  { figure: 'requestsPerS', title: 'requests/s', digits: 0 },
  { figure: 'cpuUs', title: 'CPU µs/request', digits: 1 },
  { figure: 'p50Ms', title: 'p50 ms', digits: 2 },
  { figure: 'p99Ms', title: 'p99 ms', digits: 2 },
  { figure: 'scriptCalls', title: 'script calls/request', digits: 3 },
  { figure: 'redisCpuUs', title: 'Redis CPU µs/request', digits: 2 },
  { figure: 'postgresCpuUs', title: 'Postgres CPU µs/request', digits: 2 },
]

/** Plain digits, with a thin space between thousands. */
export const shown = (value: number, digits: number) =>
  value.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))/g, digits === 0 ? '\u2009' : '')

// Variants of one request, timed side by side: in rounds, each variant once a round, in an order drawn anew for each.
import type { TimedConnection } from './timing-connection.ts'
import { type Difference, differences, median, type Series } from './timing-statistics.ts'

/** By name, each as bytes. The first is what the others are compared with, the second another one of its kind. */
export type Variants = Record<string, Buffer>

export interface Comparison extends Difference {
  variant: string
  rounds: number
  medianUs: number
}

/** Not measured: the first answers of a process are those of code that is not compiled yet. */
const warmUpShare = 0.1

export async function compare(
  connection: TimedConnection,
  variants: Variants,
  { rounds, status }: { rounds: number; status: number },
): Promise<Comparison[]> {
  const names = Object.keys(variants)
  const series: Series[] = names.map(() => new Float64Array(rounds))
  const order = names.map((_, i) => i)
  for (let round = -Math.ceil(rounds * warmUpShare); round < rounds; round++) {
    shuffle(order)
    for (const i of order) {
      const us = await connection.time(variants[names[i]!]!, status)
      if (round >= 0) series[i]![round] = us
    }
  }
  return differences(series).map((difference, i) => ({
    variant: names[i]!,
    rounds,
    medianUs: median(series[i]!),
    ...difference,
  }))
}

function shuffle(order: number[]): void {
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1))
    ;[order[i], order[j]] = [order[j]!, order[i]!]
  }
}

/** The smallest difference that could have been seen: half the width of the interval of two of one kind. */
export const detectableUs = ([, control]: Comparison[]): number => (control!.highUs - control!.lowUs) / 2

const signed = (us: number) => `${us < 0 ? '−' : '+'}${Math.abs(us).toFixed(1)}`

export function asTable(title: string, compared: Comparison[]): string {
  const rows = compared.map(({ variant, rounds, medianUs, us, lowUs, highUs }, i) => [
    variant,
    String(rounds),
    medianUs.toFixed(1),
    ...(i === 0 ? ['', ''] : [signed(us), `${signed(lowUs)} … ${signed(highUs)}`]),
  ])
  const head = ['', 'n', 'median µs', 'difference µs', '95 % of it']
  const widths = head.map((_, i) => Math.max(...[head, ...rows].map((row) => row[i]!.length)))
  const lines = [head, ...rows].map((row) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '),
  )
  return [title, ...lines, `could have been seen: ${detectableUs(compared).toFixed(1)} µs`].join('\n')
}

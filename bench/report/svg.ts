/**
 * A plot of a benchmark: a bar for each candidate up to its median, with a line from the 25th to
 * the 75th percentile.
 */
import type { Outcome, Table } from '../outcome.ts'
import type { Result } from '../rounds.ts'
import { type Column, columns, shown } from './columns.ts'

const plotted: { figure: Column['figure']; title: string }[] = [
  { figure: 'cpuUs', title: 'CPU per request, µs (less is better)' },
  { figure: 'requestsPerS', title: 'requests per second (more is better)' },
]

const width = 900
const margin = 16
const labelWidth = 140
const valueWidth = 62
const panelGap = 28
const rowHeight = 26
const barHeight = 16
const headHeight = 58
const ours = '#0b6e8a'
const others = '#9aa5ad'

const escaped = (text: string) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`)

const text = (x: number, y: number, content: string, more = '') =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escaped(content)}</text>`

const line = (x1: number, y1: number, x2: number, y2: number) =>
  `<line x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}" stroke="#1b2429"/>`

/** The bars of one figure, one per row. */
function panel(
  results: Result[],
  plot: (typeof plotted)[number],
  left: number,
  top: number,
  wide: number,
): string[] {
  const { figure, title } = plot
  const { digits } = columns.find((column) => column.figure === figure)!
  const highest = Math.max(...results.map(({ upperQuartile }) => upperQuartile[figure] ?? 0))
  const scale = (value: number) => (value / highest) * (wide - valueWidth)
  const bars = results.flatMap(({ name, median, lowerQuartile, upperQuartile }, i) => {
    const y = top + i * rowHeight
    const middle = y + barHeight / 2
    const [low, high] = [left + scale(lowerQuartile[figure] ?? 0), left + scale(upperQuartile[figure] ?? 0)]
    const colour = isOurs(name) ? ours : others
    return [
      `<rect x="${left}" y="${y}" width="${scale(median[figure] ?? 0).toFixed(1)}" height="${barHeight}" fill="${colour}"/>`,
      line(low, middle, high, middle),
      line(low, middle - 3, low, middle + 3),
      line(high, middle - 3, high, middle + 3),
      text(high + 6, middle + 4, shown(median[figure] ?? 0, digits)),
    ]
  })
  return [text(left, top - 10, title, 'fill="#56636b"'), ...bars]
}

/** The candidates that Latchkey is compared with are grey. */
const peers = [
  'latchkey-before',
  'bare',
  'bare-tuned',
  'fastify-rate-limit',
  'flexible',
  'obvious',
  'caching',
]
const isOurs = (name: string) => !peers.includes(name) && !name.endsWith('pgbench')

function chart({ title, results, figures }: Table, top: number): string[] {
  const rowsTop = top + headHeight
  const plots = plotted.filter(({ figure }) => figures?.includes(figure) ?? true)
  const wide = (width - 2 * margin - labelWidth - panelGap) / 2
  return [
    text(margin, top + 18, title, 'font-size="15" font-weight="600"'),
    ...results.map(({ name }, i) =>
      text(margin + labelWidth - 10, rowsTop + i * rowHeight + barHeight / 2 + 4, name, 'text-anchor="end"'),
    ),
    ...plots.flatMap((plot, i) =>
      panel(results, plot, margin + labelWidth + i * (wide + panelGap), rowsTop, wide),
    ),
  ]
}

export function svg({ title, tables }: Outcome): string {
  let top = margin
  const parts: string[] = []
  for (const table of tables) {
    parts.push(...chart(table, top))
    top += headHeight + table.results.length * rowHeight + margin
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${top}" viewBox="0 0 ${width} ${top}" font-family="system-ui, sans-serif" font-size="12" fill="#1b2429" role="img">
<title>${escaped(title)}</title>
<rect width="${width}" height="${top}" fill="#ffffff"/>
${parts.join('\n')}
</svg>
`
}

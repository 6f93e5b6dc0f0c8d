/** A benchmark's result page, in Markdown. */
import type { Facts } from '../facts.ts'
import { interval, type Outcome, type Table, type Target } from '../outcome.ts'
import type { Ratio } from '../ratios.ts'
import type { Result } from '../rounds.ts'
import { type Column, columns, shown } from './columns.ts'

export const factLines = (facts: Facts): string[] => [
  `${facts.date} UTC, on ${facts.machine}; ${facts.system}; Node ${facts.node}, Redis ${facts.redis}, Postgres ${facts.postgres}; load by ${facts.load}.`,
  `${facts.rounds} rounds, each with a window of ${facts.seconds} s for each row, unless a table says otherwise. A figure is the median of the rounds (25th–75th percentile). CPU is user and system time of the server process.${facts.load.startsWith('wrk') ? ' Latencies from wrk are corrected for coordinated omission.' : ''}`,
]

function row({ name, median, lowerQuartile, upperQuartile }: Result, shownColumns: Column[]): string {
  const cells = shownColumns.map(({ figure, digits }) => {
    const [middle, low, high] = [median[figure], lowerQuartile[figure], upperQuartile[figure]]
    if (middle === null || low === null || high === null) return '–'
    return `${shown(middle, digits)} (${shown(low, digits)}–${shown(high, digits)})`
  })
  return `| ${[name, ...cells].join(' | ')} |`
}

export const ratioLine = ({ what, perRound }: Ratio) =>
  `${what}: ${perRound.median.toFixed(3)} (${interval(perRound)})`

const ratioTable = (ratios: Ratio[]): string[] => {
  const [first] = ratios
  if (first === undefined) return []
  return [
    `| ${first.figure} | median of the ratios of each round | its interval | best quarters |`,
    '|---|---:|---:|---:|',
    ...ratios.map(
      ({ what, perRound, bestQuarters }) =>
        `| ${what} | ${perRound.median.toFixed(3)} | ${interval(perRound)} | ${bestQuarters.toFixed(3)} |`,
    ),
    '',
  ]
}

function table({ title, about, results, ratios, figures }: Table): string[] {
  const shownColumns = columns.filter(({ figure }) => figures?.includes(figure) ?? true)
  return [
    `## ${title}`,
    '',
    about,
    '',
    `| ${['', ...shownColumns.map((column) => column.title)].join(' | ')} |`,
    `|---|${'---:|'.repeat(shownColumns.length)}`,
    ...results.map((result) => row(result, shownColumns)),
    '',
    ...ratioTable(ratios),
  ]
}

export const targetLine = ({ met, what, want, got }: Target) =>
  `${met ? 'met    ' : 'NOT MET'}  ${what}: ${got} (wanted ${want})`

export function markdown({ name, title, tables, targets, notes }: Outcome, facts: Facts): string {
  const targetRows = targets.map(
    ({ what, want, got, met }) => `| ${what} | ${want} | ${got} | ${met ? 'met' : '**not met**'} |`,
  )
  const parts = [
    `# ${title}`,
    '',
    'Written by `npm run bench`; do not edit.',
    '',
    ...factLines(facts),
    '',
    `![${title}](${name}.svg)`,
    '',
    ...tables.flatMap(table),
    ...(targets.length > 0
      ? ['## Targets', '', '| | wanted | measured | |', '|---|---|---|---|', ...targetRows, '']
      : []),
    ...notes.map((note) => `- ${note}`),
  ]
  return `${parts.join('\n').trimEnd()}\n`
}

/** The tables of a benchmark, as Markdown. */
import type { Facts } from '../facts.ts'
import type { Outcome, Table, Target } from '../outcome.ts'
import type { Result } from '../rounds.ts'
import { columns, shown } from './columns.ts'

export const factLines = (facts: Facts): string[] => [
  `${facts.date} UTC. ${facts.machine}; ${facts.system}; Node ${facts.node}, Redis ${facts.redis}, Postgres ${facts.postgres}; load by ${facts.load}.`,
  `${facts.rounds} rounds of ${facts.seconds} s, in turns, after a warm-up. Each figure is the median of the rounds (lowest to highest). CPU is user and system time of the server process.`,
]

function row({ name, median, min, max }: Result): string {
  const cells = columns.map(({ figure, digits }) => {
    const [middle, low, high] = [median[figure], min[figure], max[figure]]
    if (middle === null || low === null || high === null) return '–'
    return `${shown(middle, digits)} (${shown(low, digits)}–${shown(high, digits)})`
  })
  return `| ${[name, ...cells].join(' | ')} |`
}

const table = ({ title, about, results }: Table): string[] => [
  `## ${title}`,
  '',
  about,
  '',
  `| ${['', ...columns.map((column) => column.title)].join(' | ')} |`,
  `|---|${'---:|'.repeat(columns.length)}`,
  ...results.map(row),
  '',
]

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

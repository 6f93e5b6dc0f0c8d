/** latchkey usage: how often a key was used, over time. */
import { type UsageStep, usageStepS } from '../../schemas/bounds.ts'
import type { UsagePoint } from '../../schemas/usage.ts'
import { command, moment, noKey, table, withStores } from './command.ts'
import { since, step, type Time, until } from './options.ts'

const sparklineWidthMax = 60

/** What this process cannot see of the current minute, by how requests are counted. */
const currentMinuteNotes = {
  shared: null,
  local: 'Redis is not counting: the current minute may be missing',
  memory: 'Without Redis, only the service knows the minutes that it has not stored yet',
}

export const usage = command<{ since?: Time; until?: Time; step?: UsageStep }>('usage <apk_…>', {
  summary: 'show how often a key was used, by minute, hour or day',
  example: 'usage apk_0mwper0pk00000mdrnk1c8vb2d --since 6h --step minute',
  options: [step, since, until],
  async run({ config, options: { since, until, step }, args: [id = ''] }) {
    const { found, mode } = await withStores(config, async ({ keys, usageHistory, counter }) => {
      const key = await keys.get(id, null)
      if (key === null) throw noKey(id)
      const nowS = (await counter.now()) / 1000
      const query = {
        ...(step && { step }),
        ...(since && { since: String(since(nowS)) }),
        ...(until && { until: String(until(nowS)) }),
      }
      return { found: await usageHistory.read(key, query), mode: counter.mode() }
    })
    if (!found.ok)
      throw new Error(`${found.message} ${found.suggestion}`.replaceAll(/`(since|until|step)`/g, '--$1'))
    const { usage } = found
    const total = usage.data.reduce((sum, { requests }) => sum + requests, 0)
    const peak = usage.data.reduce((max, { requests }) => Math.max(max, requests), 0)
    const lost = usage.incomplete.filter((start) => !usage.data.some((point) => point.start === start))
    const points = [...usage.data, ...lost.map((start) => ({ start, requests: 0, limited: 0 }))]
    const rows = points
      .sort((a, b) => a.start - b.start)
      .map(({ start, requests, limited }) => [
        moment(start),
        String(requests),
        String(limited),
        usage.incomplete.includes(start) ? 'at least' : '',
      ])
    const note = usage.until > Date.now() / 1000 ? currentMinuteNotes[mode] : null
    const atLeast = usage.incomplete.length > 0 ? 'at least ' : ''
    return {
      json: usage,
      lines: [
        `${moment(usage.since)} to ${moment(usage.until)}: ${atLeast}${total} ${total === 1 ? 'request' : 'requests'}, ${atLeast || 'at most '}${peak} in one ${usage.step}`,
        ...(note === null ? [] : [note]),
        `|${sparkline(everyStep(usage.data, usage), sparklineWidthMax)}|`,
        ...(rows.length > 0 ? ['', ...table([usage.step, 'requests', 'limited', ''], rows)] : []),
      ],
    }
  },
})

/** Steps without requests are left out of a history. */
function everyStep(data: UsagePoint[], span: { step: UsageStep; since: number; until: number }): number[] {
  const lengthS = usageStepS[span.step]
  const values = new Array<number>((span.until - span.since) / lengthS).fill(0)
  for (const { start, requests } of data) values[(start - span.since) / lengthS] = requests
  return values
}

const bars = [...'▁▂▃▄▅▆▇█']

/** One character for each value, or for the highest of several if there are more than `widthMax`. */
export function sparkline(values: number[], widthMax: number): string {
  const each = Math.ceil(values.length / widthMax)
  const columns = Array.from({ length: Math.ceil(values.length / each) }, (_, i) =>
    Math.max(...values.slice(i * each, (i + 1) * each)),
  )
  const peak = Math.max(...columns)
  return columns
    .map((value) => (value === 0 ? ' ' : bars[Math.ceil((value / peak) * bars.length) - 1]))
    .join('')
}

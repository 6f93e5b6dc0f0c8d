/** How often a key was used, over time. */
import { request } from './api.js'
import { createChart } from './charts.js'
import { nowS } from './clock.js'
import { el, table } from './dom.js'
import { count, dayOf, moment, shortTimeOf } from './format.js'

const steps = [
  ['minute', 60, 'last hour', 3600],
  ['hour', 3600, 'last 48 hours', 48 * 3600],
  ['day', 86_400, 'last 30 days', 30 * 86_400],
]

const series = {
  requests: { label: 'requests', color: 'accent', bars: true },
  incomplete: { label: 'in incomplete steps', color: 'amber', bars: true },
  limited: { label: 'over the limit', color: 'violet', bars: true },
}

export function createUsageChart(container, keyId) {
  const chartBox = el('div', { className: 'chart' })
  const note = el('p', { className: 'note' })
  const choice = el(
    'fieldset',
    { className: 'choice' },
    el('legend', { textContent: 'Usage' }),
    ...steps.map(([step, , label], i) => {
      const input = el('input', { type: 'radio', name: 'step', value: step, checked: i === 0 })
      input.addEventListener('change', () => show(i))
      return el('label', {}, input, ' ', el('span', { textContent: label }))
    }),
  )
  // The chart shows the numbers of a single step only under a pointer.
  const figures = table('Table of usage', ['From', 'Requests', 'Over the limit'], [])
  const summary = el('summary', { className: 'note', textContent: 'As a table' })
  container.replaceChildren(choice, chartBox, note, el('details', {}, summary, figures))
  /** In the place of the chart. One of another range must not stay below the new choice. */
  function say(text) {
    chartBox.replaceChildren(el('p', { className: 'note', textContent: text }))
    note.textContent = ''
    figures.show([])
  }

  async function show(i) {
    const isChosen = () => choice.elements[i].checked
    const [step, stepS, , rangeS] = steps[i]
    const untilS = nowS()
    say('Loading…')
    try {
      const usage = await request('GET', `/admin/keys/${keyId}/usage?step=${step}`)
      if (!isChosen()) return
      const label = step === 'day' ? dayOf : shortTimeOf
      const range = () => [untilS - rangeS, untilS + stepS]
      const incomplete = new Set(usage.incomplete)
      const columns = filled(usage.data, stepS, untilS - rangeS, untilS)
      const lost = incomplete.size
      const [starts, requests, limited] = columns
      // Drawn in this order: on the bars of all requests, and below those over the limit.
      const shown = [
        [series.requests, requests],
        ...(lost > 0
          ? [[series.incomplete, starts.map((at, i) => (incomplete.has(at) ? requests[i] : null))]]
          : []),
        [series.limited, limited],
      ]
      const options = { series: shown.map(([one]) => one), label, time: moment, range, totals: true }
      const draw = createChart(chartBox, options)
      draw([starts, ...shown.map(([, column]) => column)])
      figures.show(rowsOf(columns, incomplete))
      note.textContent = lost > 0 ? `In ${lost} of these steps, not every request was stored.` : ''
    } catch (error) {
      if (isChosen()) say(error.message)
    }
  }
  show(0)
}

/** Steps without requests are left out of the history, and are zero here. */
function filled(points, stepS, fromS, toS) {
  const byStart = new Map(points.map((point) => [point.start, point]))
  const columns = [[], [], []]
  for (let start = Math.ceil(fromS / stepS) * stepS; start <= toS; start += stepS) {
    const { requests = 0, limited = 0 } = byStart.get(start) ?? {}
    columns[0].push(start)
    columns[1].push(requests)
    columns[2].push(limited)
  }
  return columns
}

/** The newest first, without those that are surely zero. */
const rowsOf = ([starts, requests, limited], incomplete) =>
  starts
    .map((start, i) => {
      const least = incomplete.has(start) ? 'at least ' : ''
      return [moment(start), `${least}${count(requests[i])}`, `${least}${count(limited[i])}`]
    })
    .filter((_, i) => requests[i] > 0 || incomplete.has(starts[i]))
    .reverse()

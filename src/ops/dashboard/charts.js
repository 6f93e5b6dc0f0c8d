/**
 * Charts over time. The legend shows the numbers under the pointer as text; without a pointer, the
 * newest ones or the totals.
 */
import { nowS } from './clock.js'
import { el } from './dom.js'
import { count, figure, shortTimeOf, timeOf } from './format.js'
import uPlot from './uPlot.esm.js'

const heightPx = 120
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
const isDark = matchMedia('(prefers-color-scheme: dark)')

/**
 * `series`: [{ label, color, fill?, bars? }]. `data`: the times in Unix seconds, then the values of
 * each series; null is a gap. `range`: from when to when. `label`: of a moment on the axis, and
 * `time`: of the one under the pointer. `totals`: show those while no step is under the pointer.
 */
export function createChart(container, options) {
  const { series, unit = '', range, label = shortTimeOf, time = timeOf, totals = false } = options
  const values = series.map(({ color }) => el('b', { className: `value ${color}` }))
  const pointed = el('span', { className: 'note' })
  const legend = el(
    'p',
    { className: 'legend' },
    ...series.map(({ label }, i) => el('span', {}, values[i], ` ${label}`)),
    pointed,
  )
  const canvas = el('div', { 'aria-hidden': 'true' })
  container.replaceChildren(legend, canvas)
  let data = [[], ...series.map(() => [])]
  let plot = null

  function showValues(index) {
    // None where nothing is under the pointer, or what was there has gone.
    const pointedS = data[0][index]
    values.forEach((value, i) => {
      const column = data[i + 1]
      const usual = totals ? column.reduce((sum, one) => sum + one, 0) : column.at(-1)
      const shown = pointedS === undefined ? usual : column[index]
      // A total is exact, a rate is not.
      value.textContent = totals && shown !== null ? count(shown) : `${figure(shown)}${unit}`
    })
    pointed.textContent = pointedS === undefined ? '' : time(pointedS)
  }

  function draw() {
    plot?.destroy()
    const axis = { stroke: color('muted'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false } }
    const options = {
      width: canvas.clientWidth,
      height: heightPx,
      legend: { show: false },
      cursor: { y: false, drag: { setScale: false } },
      scales: {
        x: { range },
        y: { range: (_plot, _min, max) => [0, Math.max(max * 1.1, 1)] },
      },
      axes: [
        { ...axis, space: 44, size: 28, values: (_plot, splits) => splits.map(label) },
        { ...axis, size: 44, space: 30, values: (_plot, splits) => splits.map((split) => figure(split)) },
      ],
      series: [{}, ...series.map(styleOf)],
      hooks: { setCursor: [(plot) => showValues(plot.cursor.idx)] },
    }
    plot = new uPlot(options, data, canvas)
  }

  isDark.addEventListener('change', draw)
  // Also called when the canvas is removed. uPlot keeps a chart until it is destroyed.
  const resized = new ResizeObserver(() => {
    if (canvas.isConnected) return plot?.setSize({ width: canvas.clientWidth, height: heightPx })
    resized.disconnect()
    isDark.removeEventListener('change', draw)
    plot?.destroy()
  })
  resized.observe(canvas)
  return (next) => {
    data = next
    if (plot === null) draw()
    else plot.setData(data)
    showValues(plot.cursor.idx)
  }
}

const styleOf = ({ color: name, fill, bars }) => ({
  stroke: color(name),
  width: 1.5,
  points: { show: false },
  ...((fill || bars) && { fill: `${color(name)}${bars ? 'cc' : '22'}` }),
  ...(bars && { paths: uPlot.paths.bars({ size: [0.8, 24] }) }),
})

const historyS = 300
/** A longer gap between two samples means that nobody was watching. */
const gapS = 5

/** The charts of the last five minutes, fed with the samples of the event stream. */
export function createTrafficCharts(containers) {
  const range = () => [nowS() - historyS, nowS()]
  const charts = [
    ['requests', [{ label: 'requests', color: 'accent', fill: true }]],
    [
      'refused',
      [
        { label: '401', color: 'amber' },
        { label: '429', color: 'violet' },
        { label: '5xx', color: 'red' },
      ],
    ],
    [
      'latency',
      [
        { label: 'p50', color: 'accent' },
        { label: 'p99', color: 'violet' },
      ],
      ' ms',
    ],
  ].map(([name, series, unit]) => createChart(containers[name], { series, unit, range }))
  const columns = [['requests'], ['refused', 'limited', 'errors'], ['p50_ms', 'p99_ms']]
  let samples = []

  function show(next) {
    const from = nowS() - historyS
    samples = next.filter(({ at }) => at >= from)
    const steps = samples.flatMap((sample, i) => {
      const before = samples[i - 1]
      return before && sample.at - before.at > gapS ? [{ at: before.at + 1 }, sample] : [sample]
    })
    const times = steps.map(({ at }) => at)
    // While Postgres is down, only this instance is counted. Afterwards, that would look like a drop.
    const newest = steps.findLastIndex(({ complete }) => complete)
    const shownOf = (name) => (step, i) => (step.complete || i > newest ? (step[name] ?? null) : null)
    charts.forEach((chart, i) => {
      chart([times, ...columns[i].map((name) => steps.map(shownOf(name)))])
    })
  }

  return {
    /** The clock of a new connection's instance may be behind, and uPlot needs the times in order. */
    add: (sample) => show([...samples.filter(({ at }) => at < sample.at), sample]),
    /**
     * Each connection begins with what its instance remembers. Most of it is already here, and
     * seconds without a viewer of that instance are not in it.
     */
    begin(past) {
      const isMissing = ({ at }) => past.every((one) => Math.abs(one.at - at) >= 1)
      show([...samples.filter(isMissing), ...past].sort((a, b) => a.at - b.at))
    },
  }
}

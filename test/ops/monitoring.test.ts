// The alerts, the Grafana dashboard and the runbook: what they name exists, in a live service and
// in each other.
import { spawnSync } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { makeCaller, startInstance, startOps } from '../instance.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../services/folders.ts'
import { useServices } from '../services/index.ts'

const root = new URL('../../', import.meta.url)
const read = (name: string) => readFile(new URL(name, root), 'utf8')
const promtool = (...args: string[]) =>
  spawnSync('promtool', args, { cwd: new URL('ops/prometheus/', root), encoding: 'utf8' })
const skip = promtool('--version').status !== 0 && 'there is no promtool on this machine'

interface Alert {
  alert: string
  expr: string
  labels: { severity: string }
  annotations: { summary: string; runbook_url: string }
}
interface Panel {
  id: number
  type: string
  title: string
  gridPos: Record<'x' | 'y' | 'w' | 'h', number>
  datasource?: { uid: string }
  targets?: { expr: string; refId: string }[]
}

const alerts: Alert[] = parse(await read('ops/prometheus/alerts.yml')).groups.flatMap(
  ({ rules }: { rules: Alert[] }) => rules,
)
const { panels }: { panels: Panel[] } = JSON.parse(await read('ops/grafana/latchkey.json'))
const queries = panels.flatMap(({ targets = [] }) =>
  targets.map(({ expr }) => expr.replaceAll('$__rate_interval', '1m')),
)
const expressions = [...alerts.map(({ expr }) => expr), ...queries]

t.test('Prometheus accepts the configuration and the alerts', { skip }, async (t) => {
  t.match(promtool('check', 'config', 'prometheus.yml'), { status: 0 })
})

t.test('each alert fires when it should, and only then', { skip }, async (t) => {
  const { status, stdout, stderr } = promtool('test', 'rules', 'alerts.test.yml')
  t.equal(status, 0, stdout + stderr)
  const tests = await read('ops/prometheus/alerts.test.yml')
  for (const { alert } of alerts) t.ok(tests.includes(alert), `${alert} has a test`)
})

t.test('Prometheus understands every query of the dashboard', { skip }, async (t) => {
  const rules = queries.map((expr, i) => ({ record: `query:${i}`, expr }))
  const folder = await makeTemporaryFolder('dashboard')
  t.teardown(() => removeTemporaryFolder(folder))
  // JSON is YAML.
  const file = join(folder, 'rules.yml')
  await writeFile(file, JSON.stringify({ groups: [{ name: 'dashboard', rules }] }))
  const { status, stdout, stderr } = promtool('check', 'rules', file)
  t.equal(status, 0, stdout + stderr)
})

t.test('each alert leads to its section of the runbook, and each section has its alert', async (t) => {
  const runbook = await read('docs/runbook.md')
  const sections = [...runbook.matchAll(/^## (.+)$/gm)].map(([, title]) => title!)
  t.strictSame(sections.sort(), alerts.map(({ alert }) => alert).sort())
  const { repository } = JSON.parse(await read('package.json'))
  const home = repository.url.replace(/^git\+|\.git$/g, '')
  for (const { alert, labels, annotations } of alerts) {
    t.equal(annotations.runbook_url, `${home}/blob/main/docs/runbook.md#${alert.toLowerCase()}`)
    t.match(labels.severity, /^(critical|warning)$/, alert)
  }
  for (const part of runbook.split(/^## /m).slice(1)) {
    t.match(part, /\*\*It means\*\*.+\*\*Look at\*\*.+\*\*Do\*\*/s, part.split('\n')[0]!)
  }
})

t.test('every metric and label in an alert, a panel or the runbook is on /metrics', async (t) => {
  const instance = await startInstance(t, await useServices(t))
  const ops = await startOps(t, instance)
  const { token } = await makeCaller(instance)
  await instance.ask('GET', '/v1/verify', { token })
  const { samples, types } = parsePrometheus((await ops.ask('GET', '/metrics')).text)
  const labels = new Set(samples.flatMap((sample) => Object.keys(sample.labels)))
  const runbook = await read('docs/runbook.md')
  for (const expression of [...expressions, ...(runbook.match(/latchkey_[a-z0-9_]+[a-z0-9]/g) ?? [])]) {
    for (const [name] of expression.matchAll(/\b(latchkey|nodejs|process)_[a-z0-9_]+[a-z0-9]/g))
      t.ok(types.has(name) || types.has(name.replace(/_(bucket|sum|count)$/, '')), name)
    const by = [...expression.matchAll(/\bby \(([^)]+)\)/g)].flatMap(([, names]) => names!.split(/, ?/))
    const selected = [...expression.matchAll(/([a-z_]+)=~?"/g)].map(([, name]) => name!)
    for (const label of [...by, ...selected])
      t.ok(labels.has(label) || ['instance', 'job'].includes(label), `label ${label}`)
  }
  const operations = await read('docs/operations.md')
  for (const { name, labels } of samples.filter(({ name }) => name === 'latchkey_shed_total')) {
    t.match(operations, `\`${labels.queue}\``, `operations.md explains the queue of ${name}`)
    t.match(runbook, `\`${labels.queue}\``, `the runbook explains the queue of ${name}`)
  }
})

t.test('the panels of the dashboard have their own places, and one data source to choose', async (t) => {
  t.equal(new Set(panels.map(({ id }) => id)).size, panels.length)
  const taken = new Set<string>()
  for (const { title, type, gridPos, datasource, targets = [] } of panels) {
    t.equal(targets.length > 0, type !== 'row', `${title} shows something`)
    if (type !== 'row') t.equal(datasource?.uid, '$' + '{datasource}', title)
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        if (x >= 24 || taken.has(`${x},${y}`)) t.fail(`${title} covers another panel or the edge`)
        taken.add(`${x},${y}`)
      }
    }
  }
})

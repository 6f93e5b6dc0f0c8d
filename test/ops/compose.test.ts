// compose.yaml and the files that it mounts. There need not be a Docker engine.
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { parse } from 'yaml'
import { readConfig } from '../../src/config.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { startProxy } from '../services/load-balancer.ts'
import { freePort } from '../services/ports.ts'

const root = new URL('../../', import.meta.url)
const read = (name: string) => readFile(new URL(name, root), 'utf8')

interface Service {
  image: string
  build?: string
  pull_policy?: string
  environment?: Record<string, string>
  volumes?: string[]
  depends_on?: Record<string, unknown>
  ports?: string[]
  read_only?: boolean
  cap_drop?: string[]
  security_opt?: string[]
}

const { services, volumes } = parse(await read('compose.yaml'), { merge: true }) as {
  services: Record<string, Service>
  volumes: Record<string, unknown>
}
const instances = Object.keys(services).filter((name) => name.startsWith('latchkey'))

t.test('everything that a service names is there, and nothing is open beyond this machine', async (t) => {
  for (const [name, { ports = [], volumes: mounts = [], depends_on = {}, image }] of Object.entries(
    services,
  )) {
    t.match(image, /^(latchkey|[a-z/]+:v?[0-9][0-9a-z.-]*)$/, `${name} has a version`)
    for (const port of ports) t.match(port, /^127\.0\.0\.1:/, name)
    for (const other of Object.keys(depends_on)) t.ok(services[other], `${name} depends on ${other}`)
    for (const mount of mounts) {
      const [source] = mount.split(':')
      t.ok(source! in volumes || existsSync(new URL(source!, root)), `${name} mounts ${source}`)
    }
  }
})

t.test('one service builds the image, and none pulls it', async (t) => {
  const own = Object.entries(services).filter(([, { image }]) => image === 'latchkey')
  t.strictSame(
    own.map(([name]) => name),
    instances,
  )
  t.equal(own.filter(([, { build }]) => build === '.').length, 1)
  for (const [name, { pull_policy }] of own) t.equal(pull_policy, 'never', name)
})

t.test('three instances have a valid configuration and nothing to write to', async (t) => {
  t.equal(instances.length, 3)
  for (const name of instances) {
    const { environment = {}, ...service } = services[name]!
    t.match(service, { read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] }, name)
    const secret = 'at-least-thirty-two-visible-characters'
    const env = Object.entries(environment).map(([key, value]) => [
      key,
      value.replace(/^\$\{[A-Z_]+(:-(.*)|:\?.*)\}$/, (_, _rest, fallback) => fallback ?? secret),
    ])
    const config = readConfig(Object.fromEntries(env))
    t.match(config, { trustProxy: 1, databaseUrl: /@postgres:5432/ })
    t.strictSame(config.redis, readConfig({ ...Object.fromEntries(env), REDIS_URL: 'redis://redis' }).redis)
  }
})

t.test('Prometheus scrapes each instance, and Grafana asks Prometheus', async (t) => {
  const { scrape_configs } = parse(await read('ops/prometheus/prometheus.yml'))
  t.strictSame(
    scrape_configs[0].static_configs[0].targets,
    instances.map((name) => `${name}:9464`),
  )
  const { datasources } = parse(await read('ops/grafana/provisioning/datasources/prometheus.yml'))
  t.equal(datasources[0].url, 'http://prometheus:9090')
  const { providers } = parse(await read('ops/grafana/provisioning/dashboards/latchkey.yml'))
  const dashboard = `./ops/grafana/latchkey.json:${providers[0].options.path}/latchkey.json:ro`
  t.ok(services.grafana!.volumes!.includes(dashboard))
})

t.test('nginx spreads requests, and passes on who the client is', async (t) => {
  const used = await useServices(t)
  const backends = await Promise.all(instances.map(() => startInstance(t, used, { TRUST_PROXY: '1' })))
  const port = await freePort()
  let config = (await read('ops/nginx/nginx.conf'))
    .replace('listen 3000', `listen 127.0.0.1:${port}`)
    // Outside of its image, in a folder of the test.
    .replace('http {', `http { ${temporary.map((name) => `${name}_temp_path ${name};`).join(' ')}`)
  for (const [i, name] of instances.entries())
    config = config.replace(`${name}:3000`, `127.0.0.1:${backends[i]!.port}`)
  const front = await startProxy(t, 'nginx', {
    port,
    files: { 'nginx.conf': config },
    args: (folder) => ['-e', 'stderr', '-p', folder, '-c', 'nginx.conf', '-g', 'daemon off; pid nginx.pid;'],
  })
  if (front === null) return

  const { token } = await makeCaller(backends[0]!)
  const verify = (headers: Record<string, string>) =>
    fetch(`${front.url}/v1/verify`, { headers: { 'x-forwarded-for': '203.0.113.9', ...headers } })
  for (let n = 0; n < 9; n++) t.equal((await verify({ authorization: `Bearer ${token}` })).status, 200)
  for (const { service } of backends) t.ok(service.metrics.traffic().answers[2]! > 0)
  for (const name of ['X-Forwarded-Method', 'X-Forwarded-Uri', 'X-Original-Method', 'X-Original-URI']) {
    const refused = await verify({ [name]: '/made-up' })
    t.equal(refused.status, 401)
    const [entry] = await backends[0]!.service.stores.audit.find(refused.headers.get('x-request-id')!)
    const asked = { method: 'GET', path: '/v1/verify', ip: '127.0.0.1', details: null }
    t.match(entry, asked, `not what the client said, nor in ${name}`)
  }
})

const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']

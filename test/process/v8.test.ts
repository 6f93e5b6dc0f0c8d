// A service stays as fast as it was, whatever V8 has seen: idle times, and hundreds of new connections.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { useServices } from '../services/index.ts'
import { builtCli } from './built.ts'
import { externalEnv, serveLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const services = await useServices(t)
const probe = pathToFileURL(join(import.meta.dirname, 'v8-probe.mjs'))
const service = await serveLatchkey(t, externalEnv(services, { NODE_OPTIONS: `--import=${probe}` }))
service.kill('SIGWINCH')
const seen = await until('it has measured', () => service.log.find(({ msg }) => msg === 'v8'))

t.test('process.nextTick stays fast when all garbage is collected in an idle service', async (t) => {
  // At most twice as long as setImmediate if it is optimised, 15 times if it is not.
  t.ok((seen.nextTick as number) < 5 * (seen.setImmediate as number), JSON.stringify(seen))
})

t.test('what is created where most of it lived long is young nevertheless', async (t) => {
  t.equal(seen.young, true)
})

t.test('functions that are too large for V8’s defaults are inlined', async (t) => {
  t.equal(seen.inlined, true)
})

t.test('V8 does not collect garbage because the service is idle', async (t) => {
  // It would, after seconds. V8's help shows the value that an option has now.
  const options = pathToFileURL(join(dirname(await builtCli()), 'process/v8-options.js'))
  const program = `const { setV8Options } = await import('${options}'); setV8Options(); v8.setFlagsFromString('--help')`
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', `(async () => { ${program} })()`])
  t.match(stdout, ' --gc-memory-reducer-start-delay-ms=2147483647\n')
})

t.test('npm and the container start it with the same options of Node, which this one has', async (t) => {
  const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8')
  const start: string = JSON.parse(read('package.json')).scripts.start
  const command = /node --.*(?= serve$)/.exec(start)![0].split(' ')
  t.strictSame(JSON.parse(/(?<=^ENTRYPOINT ).*/m.exec(read('Dockerfile'))![0]), command)
  for (const page of ['README.md', 'docs/operations.md']) t.match(read(page), command.join(' '), page)
  await promisify(execFile)(process.execPath, [...command.slice(1, -1), '--eval', '0'])
})

// A service stays as fast as it was, whatever V8 has seen: idle times, and hundreds of new connections.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { useServices } from '../services/index.ts'
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

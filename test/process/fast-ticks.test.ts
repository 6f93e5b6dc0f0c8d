// A service is as fast after an idle time as before: what V8 has optimised outlives full garbage collections.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { useServices } from '../services/index.ts'
import { externalEnv, serveLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const services = await useServices(t)

t.test('process.nextTick stays fast when all garbage is collected in an idle service', async (t) => {
  const probe = pathToFileURL(join(import.meta.dirname, 'tick-probe.mjs'))
  const service = await serveLatchkey(t, externalEnv(services, { NODE_OPTIONS: `--import=${probe}` }))
  service.kill('SIGWINCH')
  const calls = await until('it has measured', () => service.log.find(({ msg }) => msg === 'calls'))
  // At most twice as long as setImmediate if it is optimised, 15 times if it is not.
  t.ok((calls.nextTick as number) < 5 * (calls.setImmediate as number), JSON.stringify(calls))
})

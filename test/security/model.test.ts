// Whatever two users do with their keys on two instances, each response is the one that a simple
// model of the service gives.
import t from 'tap'
import { startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { commands } from './model-commands.ts'
import { defaultLimit, maxKeysPerUser } from './model-oracle.ts'
import { play } from './model-play.ts'
import { holdsInLanes, tallyOf } from './seed.ts'

const services = await useServices(t)
const env = {
  MAX_KEYS_PER_USER: String(maxKeysPerUser),
  DEFAULT_RATE_LIMIT_RPM: String(defaultLimit),
  LOG_LEVEL: 'warn',
}
const instances = [await startInstance(t, services, env), await startInstance(t, services, env)]

/**
 * At least; a brief run goes on until each of these has been seen. Otherwise the sequences would
 * not reach what they are to try.
 */
const wanted = scaled(1000, 1_000_000)
const all = ['use', 'create', 'patch', 'delete', 'get', 'list']
const parameters = ['name', 'rate_limit_rpm', 'expires_at']
const tally = tallyOf([
  ...all,
  ...all.map((does) => `${does} unauthorized authorization`),
  ...all.map((does) => `${does} rate_limit_exceeded`),
  ...['patch', 'delete', 'get'].map((does) => `${does} not_found id`),
  ...parameters.flatMap((name) => [`create invalid_parameter ${name}`, `patch invalid_parameter ${name}`]),
  ...['create unknown_parameter', 'patch unknown_parameter', 'list unknown_parameter'],
  ...['create missing_parameter name', 'patch missing_parameter'],
  ...['create key_limit_reached', 'patch key_not_active id', 'list not_found starting_after'],
  ...['list invalid_parameter limit', 'list invalid_parameter status'],
])

const property = 'any sequence of requests by two users on two instances is answered as a simple model says'
t.test(property, async (t) => {
  let sequences = 0
  let brokenOff = 0
  const held = await holdsInLanes(
    t,
    commands,
    async (sequence) => {
      if (!(await play(instances, sequence, tally.add))) brokenOff++
      sequences++
    },
    { lanes: 8, numRuns: 1, more: () => tally.total < wanted || (!soaking && tally.missing().length > 0) },
  )
  t.comment(`${tally.total} requests in ${sequences} sequences, ${brokenOff} broken off: ${tally}`)
  const faults = instances.flatMap(({ log }) => log.filter(({ level }) => Number(level) >= 50))
  t.same(faults, [], 'no instance found a fault of its own')
  if (!held) return
  if (soaking)
    t.ok(brokenOff <= sequences / 50, `${brokenOff} sequences were broken off: a server was too slow`)
  t.same(tally.missing(), [], 'every outcome was among them')
  recordFigure(t, 'model', { requests: tally.total, sequences })
})

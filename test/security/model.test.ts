// Whatever two users do with their keys on two instances, each answer is the one that a simple model of the service gives.
import { Agent } from 'node:http'
import t from 'tap'
import { startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { commands } from './model-commands.ts'
import { defaultLimit, maxKeysPerUser } from './model-oracle.ts'
import { play } from './model-play.ts'
import { holdsInLanes } from './seed.ts'

const services = await useServices(t)
const env = {
  MAX_KEYS_PER_USER: String(maxKeysPerUser),
  DEFAULT_RATE_LIMIT_RPM: String(defaultLimit),
  LOG_LEVEL: 'warn',
}
const instances = [await startInstance(t, services, env), await startInstance(t, services, env)]
const agent = new Agent({ keepAlive: true })
t.teardown(() => agent.destroy())

/** At least; a brief run goes on until everything has happened that must. */
const wanted = scaled(3000, 1_000_000)
const lanes = 8

/** Each must have been seen: else the sequences do not reach what they are to try. */
const all = ['use', 'create', 'patch', 'delete', 'get', 'list']
const mustHappen = [
  ...all,
  ...all.map((does) => `${does} unauthorized authorization`),
  ...all.map((does) => `${does} rate_limit_exceeded`),
  ...['patch', 'delete', 'get'].map((does) => `${does} not_found id`),
  ...['create', 'patch'].flatMap((does) => [
    ...['name', 'rate_limit_rpm', 'expires_at'].map((param) => `${does} invalid_parameter ${param}`),
    `${does} unknown_parameter`,
  ]),
  'create missing_parameter name',
  'patch missing_parameter',
  'create key_limit_reached',
  'patch key_not_active id',
  ...[
    'list not_found starting_after',
    'list invalid_parameter limit',
    'list invalid_parameter status',
    'list unknown_parameter',
  ],
]

const property = 'any sequence of requests by two users on two instances is answered as a simple model says'
t.test(property, async (t) => {
  const tally = new Map<string, number>()
  let answered = 0
  let sequences = 0
  let brokenOff = 0
  const undecided = () => {
    brokenOff++
  }
  const seen = (what: string) => {
    answered++
    tally.set(what, (tally.get(what) ?? 0) + 1)
  }
  const missing = () => mustHappen.filter((what) => !tally.has(what))
  const begunMs = performance.now()
  const held = await holdsInLanes(
    t,
    commands,
    async (sequence) => {
      await play({ instances, agent, seen, undecided }, sequence)
      sequences++
    },
    { lanes, numRuns: 1, more: () => answered < wanted || (!soaking && missing().length > 0) },
  )
  const tookS = (performance.now() - begunMs) / 1000
  t.comment(`${answered} requests in ${sequences} sequences, ${brokenOff} broken off, ${tookS.toFixed(1)} s`)
  const often = [...tally].sort(([, a], [, b]) => b - a)
  t.comment(often.map(([what, times]) => `${what} ${times}×`).join(', '))
  const faults = instances.flatMap(({ log }) => log.filter(({ level }) => Number(level) >= 50))
  t.same(faults, [], 'no instance found a fault of its own')
  if (!held) return
  if (soaking)
    t.ok(brokenOff <= sequences / 50, `${brokenOff} sequences were broken off: a server was too slow`)
  t.same(missing(), [], 'every outcome was among them')
  recordFigure(t, 'model', { requests: answered, sequences })
})

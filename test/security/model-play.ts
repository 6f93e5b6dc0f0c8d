/** Plays a sequence of commands against instances and the oracle, in a world of its own: two users, each with a root key. */
import type { Agent } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import { Unavailable } from '../../src/stores.ts'
import { type Instance, makeKey, makeUser } from '../instance.ts'
import { until } from '../process/until.ts'
import { askOf } from './model-ask.ts'
import { send } from './model-client.ts'
import type { Command, Pause } from './model-commands.ts'
import { judge } from './model-judge.ts'
import { newModelKey, type World } from './model-world.ts'

export interface Table {
  readonly instances: readonly Instance[]
  readonly agent: Agent
  /** Called for each answer that was as expected. */
  readonly seen: (what: string) => void
  /** Called where a sequence ended early since a server was too slow, which is a 503 or a count of one instance's own. */
  readonly undecided: () => void
}

/** Nobody waits longer than this for an expiry. */
const waitMaxS = 4

export async function play(table: Table, commands: readonly (Command | Pause)[]): Promise<void> {
  const { instances, seen, undecided } = table
  /** The instances warn of servers that do not answer, and of nothing else. */
  const warnings = () => instances.reduce((sum, { log }) => sum + log.length, 0)
  // One that warned before may still be counting by itself.
  const areShared = () => instances.every(({ service }) => service.stores.counter.mode === 'shared')
  await until('every instance counts in Redis', areShared)
  const before = warnings()
  let world: World | undefined
  try {
    world = await newWorld(instances[0]!)
    for (const [at, command] of commands.entries()) {
      if (command.does === 'wait') await expiryOf(world, command)
      else seen(await step(table, world, command, at))
    }
  } catch (error) {
    if (world !== undefined && warnings() === before) throw error
    if (world === undefined && !(error instanceof Unavailable)) throw error
    undecided()
  }
}

async function step(
  { instances, agent }: Table,
  world: World,
  command: Command,
  at: number,
): Promise<string> {
  const ask = askOf(world, command, Math.floor(Date.now() / 1000))
  const answer = await send(agent, instances[command.on]!.port, ask)
  try {
    const outcome = judge(world, ask, answer)
    // The name of an unknown member is anybody's.
    const param = 'error' in outcome && outcome.error !== 'unknown_parameter' ? outcome.param : ''
    return 'error' in outcome ? `${command.does} ${outcome.error} ${param}`.trim() : command.does
  } catch (error) {
    const { method, path, json, caller, target } = ask
    const told = [
      `command ${at}: ${method} ${path} ${JSON.stringify(json) ?? ''} on instance ${command.on}`,
      (error as Error).message,
      `answer: ${answer.status} ${answer.text.slice(0, 1000)}`,
      `caller: ${caller?.id}; key: ${target?.id}; took ${answer.receivedMs - answer.sentMs} ms`,
    ]
    throw new Error(told.join('\n'))
  }
}

async function newWorld(instance: Instance): Promise<World> {
  const users = [await makeUser(instance, 'one'), await makeUser(instance, 'two')]
  const world: World = { users: users.map(({ id }) => id), keys: [], uniform: new Map() }
  const make = async (owner: number, name: string, expiresAt: number | null) => {
    const limit = 1_000_000
    const userId = world.users[owner]!
    const { id, token, created_at } = await makeKey(instance, {
      userId,
      name,
      rateLimitRpm: limit,
      expiresAt,
    })
    world.keys.push(newModelKey({ owner, id, token, createdAt: created_at, name, limit, expiresAt }))
  }
  for (const owner of [0, 1]) {
    await make(owner, 'root', null)
    // Made by the operator, who may: a key that was never usable.
    await make(owner, 'expired', Math.floor(Date.now() / 1000) - 60)
  }
  return world
}

/** Nothing but the clock can be asked whether it is that late. */
async function expiryOf({ keys }: World, { key }: Pause): Promise<void> {
  const { expiresAt } = keys[key % keys.length]!
  const waitMs = (expiresAt ?? 0) * 1000 - Date.now()
  if (waitMs > 0 && waitMs < waitMaxS * 1000) await pause(waitMs)
}

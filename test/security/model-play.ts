/**
 * Plays a sequence of commands against instances and the oracle, in a world of its own: two users,
 * each with a root key.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { Unavailable } from '../../src/stores.ts'
import { type Instance, makeKey, makeUser } from '../instance.ts'
import { until } from '../process/until.ts'
import { type Ask, askOf } from './model-ask.ts'
import type { Command, Pause } from './model-commands.ts'
import { judge, type ModelAnswer } from './model-judge.ts'
import { newModelKey, type World } from './model-world.ts'
import { bearer, host, json as jsonType, lengthOf, message } from './requests.ts'
import { openWire, type Wire } from './wire.ts'

/** The longest wait for an expiry. */
const waitMaxS = 4

/**
 * Calls `seen` for each response that was as expected. False if the sequence ended early because a
 * server was too slow: then there is a 503, or an instance counts on its own.
 */
export async function play(
  instances: readonly Instance[],
  commands: readonly (Command | Pause)[],
  seen: (what: string) => void,
): Promise<boolean> {
  /** The instances warn of servers that do not answer, and of nothing else. */
  const warnings = () => instances.reduce((sum, { log }) => sum + log.length, 0)
  // One that warned before may still be counting on its own.
  const areShared = () => instances.every(({ service }) => service.stores.counter.mode() === 'shared')
  await until('every instance counts in Redis', areShared)
  const before = warnings()
  // An instance closes a connection that brings no request in its first seconds.
  const wires: (Wire | undefined)[] = []
  const wireTo = (i: number) => (wires[i] ??= openWire(instances[i]!.port))
  let world: World | undefined
  try {
    world = await newWorld(instances[0]!)
    for (const [at, command] of commands.entries()) {
      if (command.does === 'wait') await expiryOf(world, command)
      else seen(await step(wireTo(command.on), world, command, at))
    }
    return true
  } catch (error) {
    if (world === undefined ? !(error instanceof Unavailable) : warnings() === before) throw error
    return false
  } finally {
    for (const wire of wires) wire?.socket.destroy()
  }
}

async function step(wire: Wire, world: World, command: Command, at: number): Promise<string> {
  const ask = askOf(world, command, Math.floor(Date.now() / 1000))
  const answer = await send(wire, ask)
  try {
    const outcome = judge(world, ask, answer)
    // An unknown member may have any name.
    const param = 'error' in outcome && outcome.error !== 'unknown_parameter' ? outcome.param : ''
    return 'error' in outcome ? `${command.does} ${outcome.error} ${param}`.trim() : command.does
  } catch (error) {
    const { method, path, json, caller, target } = ask
    const lines = [
      `command ${at}: ${method} ${path} ${JSON.stringify(json) ?? ''} on instance ${command.on}`,
      (error as Error).message,
      `response: ${answer.status} ${answer.text.slice(0, 1000)}`,
      `caller: ${caller?.id}; key: ${target?.id}; took ${answer.receivedMs - answer.sentMs} ms`,
    ]
    throw new Error(lines.join('\n'))
  }
}

async function send(wire: Wire, { method, path, token, json }: Ask): Promise<ModelAnswer> {
  const body = json === undefined ? '' : Buffer.from(JSON.stringify(json)).toString('latin1')
  const lines = [`${method} ${path} HTTP/1.1`, host, ...(token === null ? [] : [bearer(token)])]
  if (json !== undefined) lines.push(jsonType, lengthOf(body))
  const sentMs = Date.now()
  const answer = await wire.ask(message(lines, body))
  return { ...answer, sentMs, receivedMs: Date.now() }
}

async function newWorld(instance: Instance): Promise<World> {
  const users = [await makeUser(instance, 'one'), await makeUser(instance, 'two')]
  const world: World = { users: users.map(({ id }) => id), keys: [], uniform: new Map() }
  const limit = 1_000_000
  for (const [owner, { id: userId }] of users.entries()) {
    // The operator may create a key that was never usable.
    for (const [name, expiresAt] of [
      ['root', null],
      ['expired', Math.floor(Date.now() / 1000) - 60],
    ] as const) {
      const { id, token, created_at } = await makeKey(instance, {
        userId,
        name,
        rateLimitRpm: limit,
        expiresAt,
      })
      world.keys.push(newModelKey({ owner, id, token, createdAt: created_at, name, limit, expiresAt }))
    }
  }
  return world
}

/** Only the clock knows whether it is that late. */
async function expiryOf({ keys }: World, { key }: Pause): Promise<void> {
  const { expiresAt } = keys[key % keys.length]!
  const waitMs = (expiresAt ?? 0) * 1000 - Date.now()
  if (waitMs > 0 && waitMs < waitMaxS * 1000) await pause(waitMs)
}

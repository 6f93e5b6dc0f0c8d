/** The ways in which Redis fails, each with its end. */
import type { Serving } from '../process/latchkey.ts'
import type { Fleet } from './redis-fleet.ts'

export interface Fault {
  strike(fleet: Fleet): Promise<unknown>
  /** Resolves when Redis can count again. Absent: it can when the strike is over. */
  heal?(fleet: Fleet): Promise<unknown>
  /** The instances that have to count by themselves meanwhile. */
  takesAwayFrom(fleet: Fleet): Serving[]
  /** Whether Redis still has its counts afterwards. */
  keepsCounts?: boolean
}

const all = ({ instances }: Fleet) => instances
const none = () => []

export const killed: Fault = {
  strike: ({ redis }) => redis.kill(),
  heal: ({ redis }) => redis.restart(),
  takesAwayFrom: all,
}

/** Ended in order and there again, empty, sooner than a connection is tried again. */
export const restarted: Fault = { strike: ({ redis }) => redis.restart(), takesAwayFrom: all }

export const frozen: Fault = {
  strike: ({ redis }) => redis.freeze(),
  heal: ({ redis }) => redis.thaw(),
  takesAwayFrom: all,
}

/** Nothing passes any more between Redis and the instances with these numbers, and nobody is told. */
export const blackHoled = (...which: number[]): Fault => ({
  strike: ({ networks }) => Promise.all(which.map((i) => networks[i]!.blackHole())),
  heal: ({ networks }) => Promise.all(which.map((i) => networks[i]!.heal())),
  takesAwayFrom: ({ instances }) => which.map((i) => instances[i]!),
  keepsCounts: true,
})

/** Reads are answered, writes are refused. */
export const outOfMemory: Fault = {
  async strike({ look }) {
    await look.config('SET', 'maxmemory-policy', 'noeviction')
    await look.config('SET', 'maxmemory', '1')
  },
  heal: ({ look }) => look.config('SET', 'maxmemory', '0'),
  takesAwayFrom: all,
}

export const scriptsForgotten: Fault = {
  strike: ({ look }) => look.script('FLUSH'),
  takesAwayFrom: none,
  keepsCounts: true,
}

export const allForgotten: Fault = { strike: ({ look }) => look.flushall(), takesAwayFrom: none }

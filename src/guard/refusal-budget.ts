/**
 * Limits what someone without a key can make us write. Each refusal is a committed audit entry, so
 * without a limit anyone could fill the disk. Each address has a budget of recorded refusals in
 * each clock minute. IPv6 addresses count by their /64, which is what one subscriber gets (RFC
 * 6177). Budgets are per instance and in memory.
 */
import { minuteOf, resetAtSOf } from '../rules/window.ts'

export interface RefusalBudget {
  /**
   * Takes one refusal from the address's budget. Returns 0 if it may be recorded, otherwise the
   * number of seconds until the address has a new budget.
   */
  take(address: string | null): number
  /** Takes nothing: returns what `take` would. */
  peek(address: string | null): number
}

export interface RefusalBudgetOptions {
  perMinute: number
  /** Unix milliseconds. */
  now?: () => number
}

/** The cause of the 503 that is sent instead of a 401. */
export class RefusalBudgetSpent extends Error {}

/** Maximum number of addresses with their own budget; all others share one. About 1 MB. */
const addressesMax = 10_000
const others = 'others'

export function createRefusalBudget(options: RefusalBudgetOptions): RefusalBudget {
  const { perMinute, now = Date.now } = options
  const taken = new Map<string, number>()
  let minute = 0

  function budgetOf(address: string | null, nowMs: number) {
    if (minuteOf(nowMs) !== minute) {
      minute = minuteOf(nowMs)
      taken.clear()
    }
    const group = addressGroup(address ?? '')
    const name = taken.has(group) || taken.size < addressesMax ? group : others
    const before = taken.get(name) ?? 0
    return { name, before, waitS: before < perMinute ? 0 : Math.ceil(resetAtSOf(nowMs) - nowMs / 1000) }
  }

  return {
    take(address) {
      const { name, before, waitS } = budgetOf(address, now())
      taken.set(name, before + 1)
      return waitS
    },
    peek: (address) => budgetOf(address, now()).waitS,
  }
}

/**
 * The group that shares a budget: an IPv4 address (even if written as IPv6) by itself, any other
 * IPv6 address with its /64.
 */
export function addressGroup(address: string): string {
  if (!address.includes(':')) return address
  const hextets = withoutDots(address.split('%')[0]!)
  const [before = [], after = []] = hextets.split('::').map(numbersOf)
  const all = [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after]
  const [high, low] = all.slice(6) as [number, number]
  // A listener on :: sees every IPv4 client as ::ffff:a.b.c.d, and all of these are in one /64.
  const isIpv4 = all[5] === 0xffff && all.slice(0, 5).every((hextet) => hextet === 0)
  if (isIpv4) return [high >> 8, high & 255, low >> 8, low & 255].join('.')
  return all
    .slice(0, 4)
    .map((hextet) => hextet.toString(16))
    .join(':')
}

const numbersOf = (part: string) =>
  part === '' ? [] : part.split(':').map((hextet) => Number.parseInt(hextet, 16))

/** The last 32 bits may be written as an IPv4 address (RFC 4291, 2.2). */
const withoutDots = (address: string) =>
  address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, ...bytes: string[]) => {
    const [a, b, c, d] = bytes.map(Number) as [number, number, number, number]
    return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`
  })

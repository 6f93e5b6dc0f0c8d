/**
 * Bounds what somebody without a key can make us write. Each refusal is a committed audit entry, so without a bound a stranger
 * fills the disk. Each address may have so many recorded in a minute of the clock; IPv6 addresses count by their /64, which is
 * what one subscriber gets (RFC 6177). Per instance, and in memory.
 */
import { minuteOf, resetAtSOf } from '../rules/window.ts'

export interface RefusalBudget {
  /** Takes one refusal from the address's budget. 0: record it. Else there is none left for so many seconds. */
  take(address: string | null): number
  /** How many budgets this minute has. */
  readonly addresses: number
}

export interface RefusalBudgetOptions {
  perMinute: number
  /** Addresses with a budget of their own. All others share one. */
  addressesMax?: number
  /** Unix milliseconds. */
  now?: () => number
}

/** The cause of the 503 that is sent instead. */
export class RefusalBudgetSpent extends Error {}

/** About 1 MB. */
const addressesMaxDefault = 10_000
const others = 'others'

export function createRefusalBudget(options: RefusalBudgetOptions): RefusalBudget {
  const { perMinute, addressesMax = addressesMaxDefault, now = Date.now } = options
  const taken = new Map<string, number>()
  let minute = 0
  return {
    take(address) {
      const nowMs = now()
      if (minuteOf(nowMs) !== minute) {
        minute = minuteOf(nowMs)
        taken.clear()
      }
      const group = addressGroup(address ?? '')
      const budget = taken.has(group) || taken.size < addressesMax ? group : others
      const before = taken.get(budget) ?? 0
      if (before >= perMinute) return Math.ceil(resetAtSOf(nowMs) - nowMs / 1000)
      taken.set(budget, before + 1)
      return 0
    },
    get addresses() {
      return taken.size
    },
  }
}

/** An IPv4 address, also one written as IPv6, stands for itself; another IPv6 address for its /64. */
export function addressGroup(address: string): string {
  if (!address.includes(':')) return address
  const hextets = withoutDots(address.split('%', 1)[0]!)
  const [before = [], after = []] = hextets.split('::').map(numbersOf)
  const all = [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after]
  const [high = 0, low = 0] = all.slice(6)
  // A listener on :: sees every IPv4 client as ::ffff:a.b.c.d: one /64 for all of them.
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
    const [a = 0, b = 0, c = 0, d = 0] = bytes.map(Number)
    return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`
  })

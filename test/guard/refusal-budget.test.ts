// How many refusals of one address are recorded in a minute: exact for each address, with bounded
// memory for all.
import t from 'tap'
import { addressGroup, createRefusalBudget } from '../../src/guard/refusal-budget.ts'

function open() {
  const clock = { ms: 600_000 }
  const budget = createRefusalBudget({ perMinute: 3, now: () => clock.ms })
  /** How many of these refusals were within the budget. */
  const within = (address: string | null, times: number) =>
    Array.from({ length: times }, () => budget.take(address)).filter((waitS) => waitS === 0).length
  return { clock, budget, within }
}

t.test('each address has its own budget, and a new one in the next minute', async (t) => {
  const { clock, within } = open()
  t.equal(within('192.0.2.1', 5), 3)
  t.equal(within('192.0.2.2', 2), 2)
  clock.ms += 59_999
  t.equal(within('192.0.2.1', 1), 0)
  t.equal(within('192.0.2.2', 5), 1)
  clock.ms += 1
  t.equal(within('192.0.2.1', 5), 3)
})

t.test('beyond the budget the answer is the seconds left in the minute, at least one', async (t) => {
  const { clock, budget, within } = open()
  within('192.0.2.1', 3)
  for (const [ms, seconds] of [
    [0, 60],
    [1, 60],
    [30_000, 30],
    [59_001, 1],
    [59_999, 1],
  ] as const) {
    clock.ms = 600_000 + ms
    t.equal(budget.take('192.0.2.1'), seconds, `after ${ms} ms`)
  }
})

t.test('a clock set back starts another minute instead of an endless one', async (t) => {
  const { clock, within } = open()
  t.equal(within('192.0.2.1', 5), 3)
  clock.ms -= 3_600_000
  t.equal(within('192.0.2.1', 5), 3)
})

t.test('when there are more than 10,000 addresses, the others share one budget', async (t) => {
  const { clock, budget, within } = open()
  for (let i = 0; i < 9998; i++) budget.take(`198.51.${i >> 8}.${i & 255}`)
  t.equal(within('192.0.2.1', 1), 1)
  t.equal(within('192.0.2.2', 1), 1)
  t.equal(within('192.0.2.3', 2), 2)
  t.equal(within('192.0.2.4', 2), 1)
  t.equal(within('192.0.2.1', 5), 2, 'a known one keeps its own')
  clock.ms += 60_000
  t.equal(within('192.0.2.3', 5), 3)
  t.equal(within('192.0.2.4', 5), 3)
})

t.test('an unknown address has a budget like any other', async (t) => {
  const { within } = open()
  t.equal(within(null, 5), 3)
  t.equal(within('192.0.2.1', 5), 3)
})

const groups: Record<string, string[]> = {
  '192.0.2.1': ['192.0.2.1', '::ffff:192.0.2.1', '::FFFF:c000:201', '0:0:0:0:0:ffff:192.0.2.1'],
  '192.0.2.2': ['192.0.2.2'],
  '198.51.100.7': ['198.51.100.7', '::ffff:198.51.100.7', '::ffff:c633:6407'],
  '2001:db8:0:1': [
    ...['2001:db8:0:1::', '2001:db8:0:1::1', '2001:DB8:0:1:ffff:ffff:ffff:ffff', '2001:0db8:0000:0001::9'],
    ...['2001:db8::1:0:0:0:0', '2001:db8:0:1::192.0.2.1', '2001:db8:0:1::1%eth0'],
  ],
  '2001:db8:0:2': ['2001:db8:0:2::1'],
  'fe80:0:0:0': ['fe80::1%eth0', 'fe80::2', 'fe80::1%25x'],
  '0:0:0:0': ['::', '::1'],
  '0:0:1:0': ['0:0:1::', '::1:0:0:0:0:0'],
  // It is an IPv4 address only after zeros.
  '1:0:0:0': ['1::ffff:192.0.2.1'],
}
t.test('IPv6 addresses share a budget by /64, and an IPv4 address has its own in any form', async (t) => {
  for (const [group, addresses] of Object.entries(groups))
    for (const address of addresses) t.equal(addressGroup(address), group, address)
})

// What doctor says about clocks and unreachable servers.
import t from 'tap'
import { clockFinding, withoutAddress } from '../../src/rules/finding.ts'

t.test('a clock may differ by two seconds, and by half the time that reading it took', async (t) => {
  for (const [serverMs, afterMs, state, found] of [
    [0, 0, 'ok', '0.0 s ahead of this machine'],
    [2000, 0, 'ok', '2.0 s ahead of this machine'],
    [2001, 0, 'wrong', '2.0 s ahead of this machine'],
    [-2000, 0, 'ok', '2.0 s behind this machine'],
    [-2001, 0, 'wrong', '2.0 s behind this machine'],
    [3000, 1000, 'ok', '2.5 s ahead of this machine'],
    [3001, 1000, 'wrong', '2.5 s ahead of this machine'],
  ] as const) {
    const finding = clockFinding('the clock', 70_000 + serverMs, 70_000, 70_000 + afterMs)
    const advice = state === 'wrong' ? /NTP/ : undefined
    t.match(finding, { about: 'the clock', state, found, advice }, `${serverMs} ms, read in ${afterMs} ms`)
  }
})

t.test('what a socket says of an address stays out', async (t) => {
  for (const [message, said] of [
    ['connect ECONNREFUSED secret.example:6379', 'cannot be reached (ECONNREFUSED)'],
    ['getaddrinfo EMFILE secret', 'cannot be reached (EMFILE)'],
    ['ECONNREFUSED', 'cannot be reached (ECONNREFUSED)'],
    ['role "EDITOR" does not exist', 'role "EDITOR" does not exist'],
    ['password authentication failed', 'password authentication failed'],
    ['an EPIC failure', 'an EPIC failure'],
  ] as const)
    t.equal(withoutAddress(message), said)
})

// Redis killed and down for a while, or restarted at once; empty when it comes back.
import t from 'tap'
import { killed, restarted } from './redis-faults.ts'
import { underFaults } from './redis-round.ts'

underFaults(t, 0, [
  ['redis-killed', 'Redis killed under load: each instance counts on from the last count seen', killed],
  ['redis-restarted', 'Redis restarted empty: no instance starts over with what it has counted', restarted],
])

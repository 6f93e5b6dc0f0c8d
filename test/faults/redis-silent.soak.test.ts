// Redis silent: connections stay open and nothing comes back.
import t from 'tap'
import { blackHoled, frozen } from './redis-faults.ts'
import { underFaults } from './redis-round.ts'

underFaults(t, 0, [
  ['redis-frozen', 'Redis frozen under load: no request waits for it longer than a moment', frozen],
])
underFaults(t, 2, [
  [
    'redis-black-hole',
    'a network that drops everything is the same, also for new connections',
    blackHoled(0, 1),
  ],
])

// One instance cut off from a Redis that the other one still uses.
import t from 'tap'
import { blackHoled } from './redis-faults.ts'
import { underFaults } from './redis-round.ts'

underFaults(t, 1, [
  [
    'redis-black-hole-one',
    'an instance cut off from Redis counts by itself, and the other notices nothing',
    blackHoled(0),
  ],
])

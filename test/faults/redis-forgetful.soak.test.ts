// Redis answers but does not do its work: no memory left, scripts flushed, everything flushed.
import t from 'tap'
import { allFlushed, outOfMemory, scriptsFlushed } from './redis-faults.ts'
import { underFaults } from './redis-round.ts'

underFaults(t, 0, [
  ['redis-out-of-memory', 'Redis out of memory under load is handled like one that is down', outOfMemory],
  ['redis-script-flush', 'scripts flushed under load: Redis counts every request, and once', scriptsFlushed],
  [
    'redis-flushall',
    'everything flushed under load: no instance starts over with what it has counted',
    allFlushed,
  ],
])

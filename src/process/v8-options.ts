/** Options of V8 that suit a process which does the same small work for each of many requests. */
import { setFlagsFromString } from 'node:v8'

const options = [
  // V8 notes for each array and object literal how many of its objects survive. Where nearly all do,
  // it creates them in old space from then on. Hundreds of connections that open at once have that
  // effect on code that connections and requests share. Then part of each request is created in old
  // space too. It keeps the rest alive until a full collection, so every short one copies all
  // requests since the last: 5 to 9 ms instead of 1 (Node 20).
  '--no-allocation-site-pretenuring',
  // Twice V8's limits, in bytes of bytecode, for one function and for all that one takes in. A
  // request passes through many functions of Node's HTTP and of Fastify that are too large for them.
  '--max-inlined-bytecode-size=920',
  '--max-inlined-bytecode-size-cumulative=1840',
  // V8's memory reducer collects all garbage of a process that is idle for 8 s and shrinks its heap.
  // The requests that come next pay for that. The longest delay means never. `--no-memory-reducer`
  // has no such effect once the process runs: it still collected, and more often (Node 20).
  '--gc-memory-reducer-start-delay-ms=2147483647',
]

/** Call this once, before the first connection: what V8 has learned and compiled until then stays. */
export function setV8Options(): void {
  for (const option of options) setFlagsFromString(option)
}

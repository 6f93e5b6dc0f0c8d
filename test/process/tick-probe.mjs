// Loaded into a service (`--import`). At SIGWINCH it collects all garbage while nothing else happens, as in an idle process,
// and prints how long a thousand calls take then, at their fastest, in microseconds: { nextTick, setImmediate }.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')
const nextTurn = () => new Promise(setImmediate)
const nothing = () => {}

async function fastest(schedule) {
  let us = Infinity
  for (let i = 0; i < 300; i++) {
    await nextTurn()
    const startMs = performance.now()
    for (let j = 0; j < 1000; j++) schedule(nothing)
    us = Math.min(us, (performance.now() - startMs) * 1000)
  }
  return us
}

process.on('SIGWINCH', async () => {
  await fastest(process.nextTick)
  // V8 keeps a hidden class without objects for a few collections.
  for (let i = 0; i < 12; i++) {
    await nextTurn()
    collect()
  }
  const us = { nextTick: await fastest(process.nextTick), setImmediate: await fastest(setImmediate) }
  console.log(JSON.stringify({ msg: 'calls', ...us }))
})

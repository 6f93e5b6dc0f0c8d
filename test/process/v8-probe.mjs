// Loaded into a service (`--import`). At SIGWINCH it collects all garbage while nothing else
// happens, as in an idle process, and prints how long a thousand calls take then, at their fastest,
// in microseconds: { nextTick, setImmediate }. `young`: whether an array is created in the young
// generation although nearly all arrays of the same literal have survived. `inlined`: whether two
// calls of a function of 700 bytes of bytecode cost no allocation for the objects it returns.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
setFlagsFromString('--allow-natives-syntax')
const collect = runInNewContext('gc')
const native = (name) => new Function('it', `return %${name}(it)`)
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

function isYoungAfterLongLives() {
  const create = (n) => [n, n, n]
  native('PrepareFunctionForOptimization')(create)
  const kept = []
  // The large ones fill the young generation before `create` is called so often that V8 optimises it.
  for (let n = 0; n < 4000; n++) kept.push(create(n), new Array(4000).fill(n))
  native('OptimizeFunctionOnNextCall')(create)
  return native('InYoungGeneration')(create(kept.length))
}

function isInlined() {
  const large = new Function('n', `let sum = 0; ${'sum = (sum ^ n) & 1023;'.repeat(60)} return { sum }`)
  const caller = new Function('large', 'return (n) => large(n).sum + large(n + 1).sum')(large)
  for (const one of [large, caller]) native('PrepareFunctionForOptimization')(one)
  for (let n = 0; n < 1000; n++) caller(n)
  native('OptimizeFunctionOnNextCall')(caller)
  const calls = () => {
    for (let n = 0; n < 10_000; n++) caller(n)
  }
  calls()
  collect()
  const { heapUsed } = process.memoryUsage()
  calls()
  return process.memoryUsage().heapUsed - heapUsed < 100_000
}

process.on('SIGWINCH', async () => {
  await fastest(process.nextTick)
  // V8 keeps a hidden class without objects for a few collections.
  for (let i = 0; i < 12; i++) {
    await nextTurn()
    collect()
  }
  const us = { nextTick: await fastest(process.nextTick), setImmediate: await fastest(setImmediate) }
  console.log(JSON.stringify({ msg: 'v8', ...us, young: isYoungAfterLongLives(), inlined: isInlined() }))
})

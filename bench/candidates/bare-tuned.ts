/** `bare` in a process set up like Latchkey's. What is above it is Latchkey's own work. */
import { keepTicksFast } from '../../src/process/fast-ticks.ts'
import { setV8Options } from '../../src/process/v8-options.ts'

keepTicksFast()
setV8Options()
await import('./bare.ts')

/**
 * `bare` with `process.nextTick` kept fast, as Latchkey keeps it. What is above it is Latchkey's
 * own work.
 */
import { keepTicksFast } from '../../src/process/fast-ticks.ts'

keepTicksFast()
await import('./bare.ts')

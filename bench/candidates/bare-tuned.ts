/** `bare` in a process set up like Latchkey's. What is above it is Latchkey's own work. */
import { OneWriteResponse } from '../../src/http/one-write.ts'
import { keepTicksFast } from '../../src/process/fast-ticks.ts'
import { setV8Options } from '../../src/process/v8-options.ts'

keepTicksFast()
setV8Options()
const { serveFloor } = await import('./floor.ts')
await serveFloor({ ServerResponse: OneWriteResponse })

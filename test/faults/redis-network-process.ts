/** One network to Redis, in a process of its own: argv is where it leads, messages say what it does. Ends with its parent. */
import type { Test } from 'tap'
import { startTcpProxy } from '../services/index.ts'

process.once('disconnect', () => process.exit())
// What a test tears down goes with the process here.
const proxy = await startTcpProxy({ teardown() {} } as unknown as Test, process.argv[2]!)

process.on('message', async (order: 'blackHole' | 'heal') => {
  if (order === 'heal') await proxy.heal()
  else proxy.blackHole()
  process.send!({ done: order })
})
process.send!({ url: proxy.url })

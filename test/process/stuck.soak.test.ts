// A stop that gets stuck has 25 seconds.
import t from 'tap'
import { heldAtStart } from './held-at-start.ts'

t.test('a stop that gets stuck is ended after 25 seconds, and not with 0', async (t) => {
  const { service } = await heldAtStart(t)
  const startMs = performance.now()
  service.kill('SIGTERM')
  const { code } = await service.ended
  t.equal(code, 1)
  const tookMs = performance.now() - startMs
  t.ok(tookMs > 24_000 && tookMs < 30_000, `after ${Math.round(tookMs)} ms`)
})

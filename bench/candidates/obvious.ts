/**
 * What one would write first: a SELECT and a script call for each request. It promises what
 * Latchkey promises, except for the audit log: without a cache, a revocation takes effect
 * immediately here too.
 */
import { selectKey, serve } from './authenticated.ts'

await serve('obvious', selectKey)

/**
 * Keeps `process.nextTick` fast, which Node's HTTP calls several times for each request.
 *
 * Node makes an object for each call. If none is alive during a full garbage collection, as in an
 * idle process, their hidden class is lost, and V8 never again optimises the code that makes them:
 * a call takes 0.3 µs instead of 0.04 (Node 20, 22 and 24). One object that stays keeps the class.
 */
import { executionAsyncResource } from 'node:async_hooks'

const alive: object[] = []

/** Call this once, early: a lost class does not come back. */
export function keepTicksFast(): void {
  process.nextTick(() => alive.push(executionAsyncResource()))
}

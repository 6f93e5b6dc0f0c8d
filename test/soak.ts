/**
 * `npm run test:soak` runs the tests that have a full length: those of CI for longer (more rounds, more
 * keys, more minutes), and `*.soak.test.ts`. Its figures go into the table of docs/reliability.md;
 * those of a short run go nowhere, since a short run promises less.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'
import { figureOf, type Numbers, type Row, withFigures } from './figures.ts'

export const soaking = process.env.SOAK === '1'

/** How much of something: a little for CI, the whole for the soak. */
export const scaled = (inCi: number, inSoak: number): number => (soaking ? inSoak : inCi)

/** A test of this file gives it a page of its own. */
const page = process.env.RELIABILITY_PAGE ?? new URL('../docs/reliability.md', import.meta.url)
const measured = new Map<Row, string>()

/** Says what was measured. When the whole file has passed, a soak also writes it into the row's line. */
export function recordFigure<R extends Row>(t: Test, row: R, numbers: Numbers<R>): void {
  const figure = figureOf(row, numbers)
  t.comment(`figure ${row}: ${figure}`)
  measured.set(row, figure)
}

// Tap has set the exit code by then; a file that ran out of time is killed, and never comes here.
process.once('exit', (code) => {
  if (!soaking || code !== 0 || measured.size === 0) return
  const day = new Date().toISOString().slice(0, 10)
  writeFileSync(page, withFigures(readFileSync(page, 'utf8'), measured, day))
})

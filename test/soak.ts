/**
 * `npm run test:soak` runs the same tests as CI, for longer: more rounds, more keys, more minutes. Its figures go into the table
 * of docs/reliability.md; those of a short run go nowhere, since a short run promises less.
 */
import { readFileSync, writeFileSync } from 'node:fs'

export const soaking = process.env.SOAK === '1'

/** How much of something: a little for CI, the whole for the soak. */
export const scaled = (inCi: number, inSoak: number): number => (soaking ? inSoak : inCi)

const page = new URL('../docs/reliability.md', import.meta.url)

/** Puts what was measured into the row that ends in `<!-- row -->`. A row that is not there is a fault of the test. */
export function recordFigure(row: string, measured: string): void {
  const before = readFileSync(page, 'utf8')
  const cell = new RegExp(`\\| [^|\\n]* <!-- ${row} --> \\|$`, 'm')
  if (!cell.test(before)) throw new Error(`docs/reliability.md has no row ${row}`)
  if (!soaking) return
  const day = new Date().toISOString().slice(0, 10)
  writeFileSync(
    page,
    before.replace(cell, () => `| ${measured} (${day}) <!-- ${row} --> |`),
  )
}

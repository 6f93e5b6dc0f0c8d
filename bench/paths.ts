/** Where things are, seen from the sources as well as from the compiled files in dist/bench. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = new URL('../..', import.meta.resolve('#sql/redis/hit.lua'))
const fromRoot = (path: string) => fileURLToPath(new URL(path, root))

/** Programs are compiled: those of the same build as this file. */
const compiled = (path: string) => fileURLToPath(new URL(path, import.meta.url))

export const latchkeyCli = compiled('../src/cli.js')
export const probe = new URL('probe.js', import.meta.url).href
export const candidateProgram = (name: string) => compiled(`candidates/${name}.js`)
export const delayProgram = compiled('servers/delay.js')
export const wrkScript = fromRoot('bench/load/wrk.lua')
export const results = fromRoot('bench/results')
export const dashboardPicture = fromRoot('docs/dashboard.png')
export const scalingPage = fromRoot('docs/scaling.md')

/** The options that `npm start` gives to node in this checkout, or in that of another cli.js. */
export function startOptions(cli: string): string[] {
  const manifest = cli === latchkeyCli ? fromRoot('package.json') : join(cli, '../../../package.json')
  const { scripts } = JSON.parse(readFileSync(manifest, 'utf8'))
  return /node (.*)dist\/src\/cli\.js/.exec(scripts.start)![1]!.split(' ').slice(0, -1)
}

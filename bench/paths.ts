/** Where things are, seen from the sources as well as from the compiled files in dist/bench. */
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
export const manifest = fromRoot('package.json')

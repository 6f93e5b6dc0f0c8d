/** Paths that are right both from the sources and from the compiled files in dist/bench. */
import { fileURLToPath } from 'node:url'

const root = new URL('../..', import.meta.resolve('#sql/redis/hit.lua'))
const fromRoot = (path: string) => fileURLToPath(new URL(path, root))

export const latchkeyCli = fromRoot('dist/src/cli.js')
export const probe = new URL('probe.js', import.meta.url).href
export const candidateProgram = (name: string) => fromRoot(`dist/bench/candidates/${name}.js`)
export const wrkScript = fromRoot('bench/load/wrk.lua')
export const results = fromRoot('bench/results')
export const scalingPage = fromRoot('docs/scaling.md')

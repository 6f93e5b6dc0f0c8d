/**
 * Runs the tests' TypeScript, with the compiled JavaScript cached in `.tap/js`. tap's own loader
 * compiles in every test file's process: 1.2 s of CPU to load the compiler and 2.4 s for the
 * service and its tests, where starting without takes 0.3 s.
 */
import { createHash } from 'node:crypto'
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { register } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isMainThread } from 'node:worker_threads'

const root = fileURLToPath(new URL('../../', import.meta.url))
const cache = join(root, '.tap', 'js')

if (isMainThread) {
  // Node asks the hooks below in a thread of its own.
  register(import.meta.url)
  await leaveChildrenAlone()
}

/**
 * tap would load its record of modules into every Node process that a test starts, which costs 0.3 s
 * of CPU each. Now and then such a process hangs in its start and ignores SIGTERM.
 */
async function leaveChildrenAlone() {
  const recorder = /"?--import=[^"]*@tapjs\/processinfo[^"]*[.]mjs"?/
  const { NODE_OPTIONS } = process.env
  if (!NODE_OPTIONS || !recorder.test(NODE_OPTIONS)) return
  process.env.NODE_OPTIONS = NODE_OPTIONS.replace(recorder, '')
  const { default: processOnSpawn } = await import('process-on-spawn')
  processOnSpawn.removeAllListeners()
}

let compiler

/** A file that runs together with others has its part of their run as its `t`. */
export function resolve(specifier, context, nextResolve) {
  const { parentURL } = context
  if (specifier !== 'tap' || !parentURL?.endsWith('?together')) return nextResolve(specifier, context)
  const source = `export default globalThis.testOfFile // ${parentURL}`
  return { url: `data:text/javascript,${encodeURIComponent(source)}`, shortCircuit: true }
}

export async function load(url, context, nextLoad) {
  const [href] = url.split('?')
  if (!href.startsWith('file:') || !href.endsWith('.ts') || href.includes('/node_modules/'))
    return nextLoad(url, context)
  const path = fileURLToPath(href)
  const text = await readFile(path, 'utf8')
  const end = `\n//${digest(path + text)}`
  const file = join(cache, `${digest(path)}.js`)
  let source = await readFile(file, 'utf8').catch(() => '')
  if (!source.endsWith(end)) {
    source = (await compile(path, text)) + end
    await keep(file, source)
  }
  return { format: 'module', source, shortCircuit: true }
}

async function compile(path, text) {
  compiler ??= await openCompiler()
  return compiler(path, text)
}

/** Imports are left with their .ts, which is what is loaded. Types are checked elsewhere. */
async function openCompiler() {
  const { default: ts } = await import('typescript')
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile)
  const { target, verbatimModuleSyntax } = config.compilerOptions
  const compilerOptions = { target, verbatimModuleSyntax, module: 'esnext', inlineSourceMap: true }
  return (path, text) => ts.transpileModule(text, { compilerOptions, fileName: path }).outputText
}

/** Renamed into place: two processes may compile the same file. */
async function keep(file, source) {
  await mkdir(cache, { recursive: true })
  const own = `${file}.${process.pid}`
  await writeFile(own, source)
  await rename(own, file)
}

const digest = (text) => createHash('sha256').update(text).digest('hex').slice(0, 24)
